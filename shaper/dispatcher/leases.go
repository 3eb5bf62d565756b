package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// LeasesConfig is what [NewLeases] needs.
type LeasesConfig struct {
	Redis   redis.UniversalClient // that of the dispatchers, made by redisconn.Connect
	Timeout time.Duration         // of one call to Redis; 0 means shaper.DefaultTimeout
	Logger  *slog.Logger          // nil logs nothing

	// Registerer is where the metrics of outcomes go, under the names of a dispatcher's; nil counts nothing.
	Registerer prometheus.Registerer
}

// Leases starts and settles jobs that a dispatcher handed over, in a process that has no configuration and claims
// nothing. It is safe for concurrent use. A heartbeat for each bucket extends the leases of all jobs under way, in one round trip for 500
// of them, three times a lease.
type Leases struct {
	store *store.Store
	life  context.Context //nolint:containedctx // ends with Close
	end   context.CancelFunc
	lone  chan struct{} // held by the only job on its last chance

	mu      sync.Mutex
	loops   map[store.Keys]*bucketLoop // one for each bucket
	returns sync.WaitGroup             // of jobs that are given back
	outage  outage
	guard   poisonGuard
}

// reasonNotStarted is why a job is returned whose start nobody knows of.
const reasonNotStarted = "not_started"

// ErrNotStarted says that a job is not to be run: its lease is lost, it is over, or it was started before.
var ErrNotStarted = errors.New("dispatcher: the job is not started: its lease is lost, or it was started before")

// NewLeases makes a client for leases. It does not talk to Redis yet.
func NewLeases(cfg LeasesConfig) (*Leases, error) {
	s, err := store.New(store.Guest, cfg.Redis, nil, cfg.Timeout, cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	return &Leases{store: s, life: life, end: end, lone: make(chan struct{}, 1), loops: map[store.Keys]*bucketLoop{}, outage: outage{log: s.Log}}, nil
}

// Close ends the heartbeats. The leases of jobs that are not settled yet run out, and the jobs are delivered again. Close
// after the last [Lease.Settle] has returned: for an asynq server, after its Shutdown.
func (l *Leases) Close() {
	l.mu.Lock()
	l.end()
	loops := slices.Collect(maps.Values(l.loops))
	l.mu.Unlock()
	l.returns.Wait()
	for _, d := range loops {
		d.endHelpers()
	}
}

// Lease is a job that this process has started. It ends with [Lease.Settle].
type Lease struct {
	leases *Leases
	loop   *bucketLoop
	job    *leased
	ctx    context.Context //nolint:containedctx // of the handler: it ends with the lease
}

// Start marks the start of a job by its ticket, which a worker got from [shaper.Attempt.Ticket], and takes over its lease. It
// returns [ErrNotStarted] if the job is not to be run. While Redis is unavailable it tries until ctx ends, and then returns
// that error: the job has not started, and may be started later. A job that becomes poison by one more crash waits until no
// other such job runs in this process. One round trip.
func (l *Leases) Start(ctx context.Context, text string) (*Lease, error) {
	t, err := readTicket(text)
	if err != nil {
		return nil, err
	}
	if t.LastChance {
		select {
		case l.lone <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("dispatcher: job %q: wait for another job on its last chance: %w", t.ID, ctx.Err())
		}
	}
	lease, err := l.start(ctx, t)
	if err != nil && t.LastChance {
		<-l.lone
	}
	return lease, err
}

func (l *Leases) start(ctx context.Context, t *ticket) (*Lease, error) {
	d, err := l.drainOf(t)
	if err != nil {
		return nil, err
	}
	job := t.leased("+" + store.ShortID(rand.Uint64())) //nolint:gosec // a name, not a secret
	for wait := minFaultWait; ; wait = min(2*wait, maxFaultWait) {
		started, err := d.startLent(ctx, t, job)
		switch {
		case err == nil && !started:
			return nil, ErrNotStarted
		case err == nil:
			job.departed = time.Now()
			within, cancel := context.WithCancelCause(ctx)
			job.cancel = cancel
			d.hold([]*leased{job})
			return &Lease{leases: l, loop: d, job: job, ctx: within}, nil
		case !redisconn.Unavailable(err):
			return nil, err
		}
		if !sleep(ctx, wait/2+rand.N(wait/2)) { //nolint:gosec // jitter
			l.giveBack(d, job)
			return nil, err
		}
	}
}

// giveBack returns a job that may have been started by a call whose reply was lost. Nobody runs it: without this its lease would run out, and
// count as a crash.
func (l *Leases) giveBack(d *bucketLoop, job *leased) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return
	}
	d.hold([]*leased{job})
	l.returns.Go(func() {
		d.settle(job, shaper.Returned(reasonNotStarted))
		<-job.ended
	})
}

// startLent runs start.lua.
func (d *bucketLoop) startLent(ctx context.Context, t *ticket, job *leased) (started bool, err error) {
	// A canceled context would close the connection.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.store.Timeout)
	defer cancel()
	began := time.Now()
	reply, err := d.store.Run(call, lua.Start, d.Keys.Of(lua.Start), t.ID, t.Epoch, t.Claim, job.claim, d.lease.Microseconds())
	if err != nil {
		return false, fmt.Errorf("start job %q of bucket %q: %w", t.ID, d.Name, err)
	}
	r := lua.NewReader(reply)
	now, code := r.Int(), r.Int()
	if r.Err() != nil {
		return false, fmt.Errorf("start job %q of bucket %q: %w", t.ID, d.Name, r.Err())
	}
	d.clock.observe(began, time.Now(), now)
	return code == 1, nil
}

// drainOf returns what settles for a bucket. Its settings are those of the newest ticket.
func (l *Leases) drainOf(t *ticket) (*bucketLoop, error) {
	b := t.bucket()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return nil, shaper.ErrClosed
	}
	if d := l.loops[b.Keys]; d != nil {
		d.Settings.Store(t.settings())
		return d, nil
	}
	d := &bucketLoop{
		Bucket: b, store: l.store, log: l.store.Log.With("bucket", b.Name), dispatcher: store.ShortID(rand.Uint64()), //nolint:gosec // a name, not a secret
		lease: t.lease(), life: l.life, outage: &l.outage, guard: &l.guard, clock: newClock(), wake: make(chan struct{}, 1), link: newSlowLink(),
		held: make(map[string]*leased),
	}
	d.settler = settlerOf(d)
	d.beat = helper{within: l.life, do: d.heartbeat}
	l.loops[b.Keys] = d
	return d, nil
}

// Context is for whatever runs the job: the context of the start. It ends when the lease is lost, too.
func (l *Lease) Context() context.Context { return l.ctx }

// Settle ends the lease with an outcome of any result but [shaper.ResultHandedOver], once. It returns when Redis has taken the outcome, the
// lease was lost, or [Leases.Close] was called; while Redis is unavailable it waits, and the lease is extended as soon as Redis is back.
// Outcomes of one moment share a round trip.
func (l *Lease) Settle(outcome shaper.Outcome) {
	if outcome.Result < shaper.ResultDone || outcome.Result >= shaper.ResultHandedOver {
		outcome = shaper.Retry("no_result", fmt.Sprintf("the handler answered result %d", outcome.Result))
	}
	l.loop.settle(l.job, outcome)
	<-l.job.ended
	l.job.cancel(nil)
	if l.job.lastChance {
		<-l.leases.lone
	}
}
