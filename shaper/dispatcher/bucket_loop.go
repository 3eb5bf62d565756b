package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sometimes "golang.org/x/time/rate"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua/batch"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

const (
	// maxClaim is how many jobs a claim asks for at most, so that no script
	// needs 5 ms. A job of a flow costs three times as much as another one.
	maxClaim        = 500
	maxClaimOfFlows = 200

	// claimSpacing is the least time between two claims of a bucket, so that
	// workers that become free one by one do not cost a claim each.
	claimSpacing = 2 * time.Millisecond

	// firstClaim is how long a loop waits at most until wake-ups are heard: a claim before that would have to be repeated.
	firstClaim = time.Second

	// idleClaim is how long a loop sleeps at most.
	idleClaim = 30 * time.Second

	minFaultWait = 100 * time.Millisecond
	maxFaultWait = time.Second
)

// Answers of claim.lua and reserve.lua that are no time.
const (
	nextNever    = 0  // nothing to do until a wake-up
	nextInFlight = -1 // max_in_flight is reached
)

// bucketLoop empties one bucket in one process: it claims jobs with their slots and
// starts their deliveries.
type bucketLoop struct {
	*store.Bucket
	store       *store.Store
	shared      *store.Store // the same, for what the patrol does and the first claim
	via         *store.Store // what the next claim is sent by; the loop's own
	log         *slog.Logger
	worker      atomic.Pointer[shaper.Worker] // replaced by a reload
	dispatcher  string                        // names the loop in Redis
	lease       time.Duration
	shutdown    time.Duration // how long a stop waits for deliveries
	concurrency int
	life        context.Context         //nolint:containedctx // ends when deliveries and settling must
	kill        context.CancelCauseFunc // ends life
	stop        context.CancelFunc      // has the loop stop; nil of one that is not run
	late        shaper.Late             // why the finish will not be met, as last logged; the patrol's own
	sweeps      sweepWatch              // of the goroutine that looks after the bucket
	tended      atomic.Bool             // there is one
	quiet       bool                    // the last look saw nothing; the patrol's own, as what follows
	expiring    bool                    // there were jobs that expire
	empty       bool                    // Redis keeps nothing of the bucket that is to be audited or trimmed
	trims       bool                    // it keeps something that is to be trimmed
	news        atomic.Bool             // since the last look at what is in force there was a wake-up

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

	beat    helper // extends leases
	asks    helper // asks after jobs that were handed over
	tells   helper // moves callbacks on
	helping sync.WaitGroup

	deliveries sync.WaitGroup
	mu         sync.Mutex
	held       map[string]*leased  // by id: claimed and not settled yet
	unknown    string              // id of the claim whose answer has not arrived, "" none
	running    int                 // deliveries that occupy a worker
	starved    bool                // the loop waits for a worker
	sleeping   bool                // the loop waits for a wake-up only
	died       atomic.Bool         // jobs became dead letters since they were last trimmed
	outage     *outage             // shared by all loops, unless Redis is a cluster
	stall      *stall              // shared by all loops: the process is one
	told       chan struct{}       // a token: callbacks were written
	waitingLog sometimes.Sometimes // of callbacks that wait
	failures   failureLog
	guard      *poisonGuard // shared by all loops: the process is one

	hooks   *atomic.Pointer[[]Hook] // that events are told to
	enqueue func(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error)
}

// nudge makes the loop look for work now.
func (d *bucketLoop) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *bucketLoop) free() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	free := d.concurrency - d.running
	d.starved = free == 0
	if d.HasFlows() {
		return min(free, maxClaimOfFlows)
	}
	return min(free, maxClaim)
}

func (d *bucketLoop) setSleeping(sleeping bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sleeping = sleeping
}

func (d *bucketLoop) isSleeping() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sleeping
}

// untilNext is how long to wait until the next claim, by what a script said: it is sent so
// much earlier.
func (d *bucketLoop) untilNext(next int64, early time.Duration) time.Duration {
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
func (d *bucketLoop) obeyed() shaper.Bucket {
	b := *d.Settings.Load()
	if !d.rate.IsZero() {
		b.Rate = d.rate
	}
	return b
}

// interval is that between two slots: of a bucket that shares a pool, no less than the pool's.
func (d *bucketLoop) interval() time.Duration {
	b := d.obeyed()
	if b.Pool == nil {
		return b.Rate.Interval()
	}
	return max(b.Rate.Interval(), b.Pool.Rate.Interval())
}
