package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	sometimes "golang.org/x/time/rate"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/lua/batch"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	// maxClaim is how many jobs a claim asks for at most, so that no script
	// needs 5 ms. A job of a flow costs three times as much as another one.
	maxClaim        = 500
	maxClaimOfFlows = 150

	// claimSpacing is the least time between two claims of a bucket, so that
	// workers that become free one by one do not cost a claim each.
	claimSpacing = 2 * time.Millisecond

	// idleClaim is how long a drain sleeps at most.
	idleClaim = 30 * time.Second

	minFaultWait = 100 * time.Millisecond
	maxFaultWait = time.Second
)

// Answers of claim.lua and reserve.lua that are no time.
const (
	nextNever    = 0  // nothing to do until a wake-up
	nextInFlight = -1 // max_in_flight is reached
)

// drain empties one bucket in one process: it claims jobs with their slots and
// starts their deliveries.
type drain struct {
	*store.Bucket
	store       *store.Store
	log         *slog.Logger
	worker      atomic.Pointer[shaper.Worker] // replaced by a reload
	dispatcher  string                        // names the drain in Redis
	lease       time.Duration
	shutdown    time.Duration // how long a stop waits for deliveries
	concurrency int
	life        context.Context         //nolint:containedctx // ends when deliveries and settling must
	kill        context.CancelCauseFunc // ends life
	stop        context.CancelFunc      // has the drain stop; nil of one that is not run
	late        shaper.Late             // why the finish will not be met, as last logged; the patrol's own
	sweeps      sweepWatch              // the patrol's own

	clock     *clock
	wake      chan struct{} // a token: look for work now
	settler   batch.Queue[*settlement]
	pause     time.Time     // until then nothing is claimed; the loop's own
	own       ownDeliveries // the loop's own
	elsewhere elsewhere     // the loop's own
	idle      idleBackoff   // the loop's own

	rate      admission.Rate // in force as the last claim said, zero before; the loop's own
	permitTTL time.Duration  // at that rate; the loop's own
	wakeLate  time.Duration  // how late a delivery may wake, at that rate; the loop's own
	stepped   time.Duration  // by which the clock of Redis stepped forwards, and no script knows it; the loop's own
	closed    bool           // a script said when the window opens, so that jobs that wait are no reason to look; the loop's own
	steps     int64          // of the engine's clock, as the last claim told them: see lua/lib/pacer.lua; the loop's own

	link       slowLink // the loop's own, as what follows
	unanswered *turns   // what a claim was told whose answer is not there

	deliveries sync.WaitGroup
	mu         sync.Mutex
	held       map[string]*leased  // by id: claimed and not settled yet
	unknown    string              // id of the claim whose answer has not arrived, "" none
	running    int                 // deliveries that occupy a worker
	starved    bool                // the loop waits for a worker
	sleeping   bool                // the loop waits for a wake-up only
	died       atomic.Bool         // jobs became dead letters since they were last trimmed
	outage     *outage             // shared by all drains, unless Redis is a cluster
	told       chan struct{}       // a token: callbacks were written
	waitingLog sometimes.Sometimes // of callbacks that wait
	failures   failureLog
	guard      *poisonGuard // shared by all drains: the process is one

	hooks   *atomic.Pointer[[]Hook] // that events are told to
	enqueue func(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error)
}

func newDrain(d *Dispatcher, b *store.Bucket, life context.Context) *drain {
	worker := d.workers[b.Name]
	r := &drain{
		Bucket: b, store: d.store, log: d.store.Log.With("bucket", b.Name),
		dispatcher: store.ShortID(rand.Uint64()), lease: d.cfg.Lease, shutdown: d.cfg.ShutdownTimeout, concurrency: d.cfg.Concurrency, //nolint:gosec // a name, not a secret
		outage: &d.outage, guard: &d.guard, hooks: &d.hooks, enqueue: d.cfg.Enqueue, clock: newClock(), wake: make(chan struct{}, 1), told: make(chan struct{}, 1),
		waitingLog: sometimes.Sometimes{First: 1, Interval: time.Minute}, link: newSlowLink(), held: make(map[string]*leased),
	}
	r.worker.Store(&worker)
	r.life, r.kill = context.WithCancelCause(life)
	r.sweeps.nextAudit = time.Now().Add(rand.N(auditInterval)) //nolint:gosec // spread
	if _, ok := d.store.Redis.(*redis.ClusterClient); ok {     // one node may fail and others not
		r.outage = &outage{log: r.log}
	}
	r.settler = settlerOf(r)
	return r
}

// run drains until ctx ends, and then until the last outcome is settled.
func (d *drain) run(ctx context.Context) error {
	defer d.kill(nil)
	var helpers sync.WaitGroup
	helpers.Go(func() { d.heartbeat(d.life) })
	if d.enqueue != nil {
		helpers.Go(func() { d.tellCallbacks(ctx) })
	}
	d.loop(ctx)
	err := d.finish()
	d.tellLast()
	d.kill(errStopped)
	helpers.Wait()
	return err
}

// nudge makes the loop look for work now.
func (d *drain) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// loop claims until ctx ends. One claim is under way at a time; the next one
// is sent when half of the horizon is left, so that round trips cost no slots.
func (d *drain) loop(ctx context.Context) {
	claimID := store.ShortID(rand.Uint64()) //nolint:gosec // a name, not a secret
	faultWait := minFaultWait
	timer := time.NewTimer(0)
	defer timer.Stop()
	var start time.Time
	for {
		select {
		case <-ctx.Done():
		case <-d.wake:
			d.idle.woken()
		case <-timer.C:
		}
		if ctx.Err() != nil { // whatever else was ready: a stop claims no more
			d.fetchUnanswered(d.life, claimID)
			return
		}
		if soon := max(claimSpacing-time.Since(start), time.Until(d.pause)); soon > 0 {
			timer.Reset(soon)
			continue
		}
		want := d.free()
		if want == 0 {
			timer.Reset(idleClaim) // a worker that becomes free nudges
			continue
		}
		start = time.Now()
		// A claim outlives a stop: what it got is delivered, not left to its lease.
		wait, err := d.claim(d.life, claimID, want)
		if err != nil {
			// The same claim id again: it answers what was lost.
			if !d.elsewhere.tell(ctx, d.log, err) {
				d.outage.failed(ctx, err)
			}
			wait = faultWait/2 + rand.N(faultWait/2) //nolint:gosec // jitter
			faultWait = min(2*faultWait, maxFaultWait)
		} else {
			d.elsewhere.back(ctx, d.log)
			d.outage.worked(ctx, start, d.lease)
			claimID, faultWait = store.ShortID(rand.Uint64()), minFaultWait //nolint:gosec // a name, not a secret
		}
		d.setSleeping(err == nil && wait >= idleClaim && !d.closed)
		timer.Reset(max(wait, 0))
	}
}

func (d *drain) free() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	free := d.concurrency - d.running
	d.starved = free == 0
	if d.HasFlows() {
		return min(free, maxClaimOfFlows)
	}
	return min(free, maxClaim)
}

func (d *drain) setSleeping(sleeping bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sleeping = sleeping
}

func (d *drain) isSleeping() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sleeping
}

// claim asks for up to want jobs, starts them, and returns how long to wait
// until the next claim.
func (d *drain) claim(ctx context.Context, claimID string, want int) (time.Duration, error) {
	if step := d.clock.takeJump(); step > 0 { // a sweep has seen it, or a question before a claim that failed
		d.stepped += step
		return d.pauseForStep(ctx, step), nil
	}
	if err := d.store.Join(ctx, d.Bucket); err != nil { // before the clock runs
		return 0, err
	}
	shortest, longest := d.clock.rtt()
	whole := d.horizon()
	ahead := d.idle.ahead(whole)
	lead := min(shortest/2, ahead/2) // see clock.local
	asking := time.Duration(d.questions()) * longest
	early := whole/2 + asking

	turn := turns{flows: []string{""}}
	if d.unanswered != nil { // nobody's turn now is no reason not to ask for what it got
		turn = *d.unanswered
	} else if d.HasFlows() {
		var next int64
		var err error
		if turn, next, err = d.reserve(ctx, want, ahead, longest); err != nil {
			return 0, err
		}
		if len(turn.flows)+len(turn.groups) == 0 {
			return d.idle.looked(d.isIdle(0, want, turn.slots == 0 && next > 0, ahead), whole, d.untilNext(next, early)), nil
		}
		if d.Levels() == codec.LevelsGroups {
			// Workers became free during the two round trips. Without them, 256 workers 50 ms from Redis reach 80 % of
			// 1,000/s. After one round trip they are not worth that some flow gets two turns.
			want = max(want, d.free())
		}
	}
	d.unanswered = &turn
	call := d.toClaim(claimID, want, ahead, lead, turn)
	d.setUnanswered(claimID)
	start := time.Now()
	r, err := d.sendClaim(ctx, call)
	end := time.Now()
	if err != nil {
		d.link.failed(start, err, d)
		return 0, fmt.Errorf("claim from bucket %q: %w", d.Name, err)
	}
	d.unanswered = nil
	now, next := r.Int(), r.Int()
	_ = r.Int() // in flight; the collector reports it
	expired := r.Int()
	d.someDied(expired)
	lastChanceAt := r.Int() // from 1 on; 0: none
	d.rate = admission.Rate{Count: r.Int(), Per: time.Duration(r.Int()) * time.Microsecond, Unit: admission.UnitRequests}
	freeSlot := r.Int()
	steps, opening, closes := r.Int(), r.Int(), r.Int()
	d.permitTTL, d.wakeLate = d.obeyed().EffectivePermitTTL(), d.wakeLimit()
	d.clock.observe(start, end, now)
	step := d.clock.takeJump()
	d.stepped = step
	if step == 0 { // else the script compares with those of before: another dispatcher may have told it of this step
		d.steps = steps
	}
	var jobs, unusable []*leased
	var spare *leased
	var late time.Duration // of the first job when it arrived
	claimed, err := d.readLeases(r, claimID, now)
	if err != nil {
		return 0, err
	}
	for i, job := range claimed {
		job.lastChance = int64(i)+1 == lastChanceAt
		d.keepWithin(job, opening, closes)
		late = max(late, end.Sub(job.slot))
		if step > 0 || job.slot.After(end.Add(maxHorizon+stepSlack)) {
			unusable = append(unusable, job)
		} else if job.lastChance && !d.guard.take(job) {
			spare = job
		} else {
			jobs = append(jobs, job)
		}
	}
	// Permits from before a step forwards may still go out during a horizon:
	// these would come on top of them. And an answer from before a step
	// backwards, repeated after it, tells slots that come when the clock is
	// there again.
	d.hold(unusable)
	for _, job := range unusable {
		d.settle(job, shaper.Returned("clock_step"))
	}
	if spare != nil { // another bucket's claim was under way and got one too
		d.hold([]*leased{spare})
		d.settle(spare, shaper.Returned("last_chance"))
	}
	shift := d.link.answered(late, end.Sub(start), d.wakeLate, d.permitTTL)
	for _, job := range jobs {
		job.slot = job.slot.Add(shift)
	}
	d.start(jobs)
	d.setUnanswered("") // the process knows the jobs now
	if step > 0 {
		return d.pauseForStep(ctx, step), nil
	}
	taken := next > 0 && freeSlot > now+ahead.Microseconds()
	if d.HasFlows() && next != freeSlot { // it is not the bucket's rate that others and this one share, but turns that come later
		taken = false
	}
	return d.idle.looked(d.isIdle(len(jobs), want, taken, ahead), whole, d.untilNext(next, early)), nil
}

// toClaim is a claim of those whose turn it is.
func (d *drain) toClaim(claimID string, want int, ahead, lead time.Duration, turn turns) lua.Call {
	args := append([]any{
		d.dispatcher, claimID, want, ahead.Microseconds(), d.lease.Microseconds(), lead.Microseconds(),
		lastChance, d.guard.free(), expiredLast, d.Levels(), d.Keys.Member, store.WakeChannel, d.Name, d.link.bytes, d.stepped.Microseconds(), d.steps, len(turn.flows),
	}, turn.args...)
	return lua.Call{Script: lua.Claim, Keys: d.Keys.OfGroups(lua.Claim, turn.flows, turn.groups), Args: args}
}

// untilNext is how long to wait until the next claim, by what a script said: it is sent so
// much earlier.
func (d *drain) untilNext(next int64, early time.Duration) time.Duration {
	b := d.Settings.Load()
	d.closed = next > 0 && (b.Drain != nil || len(b.Calendar) > 0)
	switch next {
	case nextNever, nextInFlight:
		return idleClaim
	default:
		return min(time.Until(d.clock.local(next))-early, idleClaim)
	}
}

// obeyed is the bucket with the rate that is in force: an operator may have
// changed it.
func (d *drain) obeyed() shaper.Bucket {
	b := *d.Settings.Load()
	if !d.rate.IsZero() {
		b.Rate = d.rate
	}
	return b
}

// interval is that between two slots: of a bucket that shares a pool, no less than the pool's.
func (d *drain) interval() time.Duration {
	b := d.obeyed()
	if b.Pool == nil {
		return b.Rate.Interval()
	}
	return max(b.Rate.Interval(), b.Pool.Rate.Interval())
}

// outage logs that Redis went and came back, once each, and remembers when one
// ended that was long enough for leases to run out with nobody dead.
type outage struct {
	log *slog.Logger

	mu    sync.Mutex
	since time.Time
	long  time.Time // end of the last long one
	last  time.Time // when the last call was answered
}

func (o *outage) failed(ctx context.Context, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() && !errors.Is(err, context.Canceled) {
		o.since = time.Now()
		if redisconn.Unavailable(err) {
			o.log.ErrorContext(ctx, "redis does not answer: nothing is claimed until it does", "error", err)
		} else {
			o.log.ErrorContext(ctx, "nothing is claimed until this is put right", "error", err)
		}
	}
}

// worked notes a call that Redis answered. One that took long counts as an
// outage too. A heartbeat that fails is made good by the next one, a third of
// a lease later: an outage shorter than that costs no lease.
func (o *outage) worked(ctx context.Context, began time.Time, lease time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.last = now
	if !o.since.IsZero() {
		o.log.InfoContext(ctx, "claims work again", "after", now.Sub(o.since).Round(time.Millisecond))
		if o.since.Before(began) {
			began = o.since
		}
		o.since = time.Time{}
	}
	if now.Sub(began) > lease/3 {
		o.long = now
	}
}

// lastLong is when the last long outage ended, zero if there was none.
func (o *outage) lastLong() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.long
}
