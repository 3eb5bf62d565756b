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
	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// LeasesConfig is what [NewLeases] needs.
type LeasesConfig struct {
	Redis   redis.UniversalClient // the Redis of the dispatchers, returned by redisconn.Connect
	Timeout time.Duration         // of one call to Redis; 0 means shaper.DefaultTimeout
	Logger  *slog.Logger          // nil logs nothing

	// Registerer registers the metrics of outcomes, under a dispatcher's names; nil counts nothing.
	Registerer prometheus.Registerer

	// Tracer and SendIsParent are as in [Config], for the attempts of [Permits]. A job that another process starts by its ticket gets no span here:
	// the attempt's traceparent is in its headers.
	Tracer       trace.TracerProvider
	SendIsParent bool
}

// Leases starts and settles jobs that a dispatcher handed over, in a process that has no configuration and claims nothing. It is safe for concurrent
// use. One heartbeat per bucket extends the leases of all jobs under way, three times a lease, in one round trip per 500 jobs.
type Leases struct {
	store *store.Store
	life  context.Context //nolint:containedctx // ends with Close
	end   context.CancelFunc
	lone  chan struct{} // held by the only job on its last chance

	mu       sync.Mutex
	settlers map[store.Keys]*settler // by bucket
	returns  sync.WaitGroup          // of jobs that are being returned
	outage   outage
	guard    poisonGuard
	spans    *attemptTracer
}

// reasonNotStarted is the reason of a job that is returned because its start is unknown.
const reasonNotStarted = "not_started"

// ErrNotStarted means that the job must not run: its lease is lost, it has ended, or it was started before.
var ErrNotStarted = errors.New("dispatcher: the job is not started: its lease is lost, or it was started before")

// NewLeases returns a client for leases, without a round trip.
func NewLeases(cfg LeasesConfig) (*Leases, error) {
	s, err := store.New(store.ReadOnly, cfg.Redis, nil, cfg.Timeout, cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	return &Leases{store: s, life: life, end: end, lone: make(chan struct{}, 1), settlers: map[store.Keys]*settler{}, outage: outage{log: s.Log}, spans: newAttemptTracer(cfg.Tracer, cfg.SendIsParent)}, nil
}

// Close ends the heartbeats. The leases of unsettled jobs expire, and the jobs are delivered again. Call it after the last [Lease.Settle] has
// returned: for an asynq server, after its Shutdown.
func (l *Leases) Close() {
	l.mu.Lock()
	l.end()
	settlers := slices.Collect(maps.Values(l.settlers))
	l.mu.Unlock()
	l.returns.Wait()
	for _, s := range settlers {
		s.held.extender.wait()
	}
}

// Lease is a job that this process has started. It ends with [Lease.Settle].
type Lease struct {
	leases  *Leases
	settler *settler
	job     *leased
	ctx     context.Context //nolint:containedctx // of the handler: it ends with the lease
}

// Start starts a job by its ticket, which a worker got from [shaper.Attempt.Ticket], and takes over its lease. It returns [ErrNotStarted] if the job
// must not run. While Redis is unavailable it tries until ctx ends, and returns the last error: the job has not started, and may be started later. A
// job that one more crash makes poison waits until no other such job runs in this process. It takes one round trip.
func (l *Leases) Start(ctx context.Context, text string) (*Lease, error) {
	t, err := readTicket(text)
	if err != nil {
		return nil, err
	}
	return l.begin(ctx, ctx, t)
}

// begin is Start with a parsed ticket. The context of the lease ends with within.
func (l *Leases) begin(ctx, within context.Context, t *ticket) (*Lease, error) {
	if t.LastChance {
		select {
		case l.lone <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("dispatcher: job %q: wait for another job on its last chance: %w", t.ID, ctx.Err())
		}
	}
	lease, err := l.start(ctx, within, t)
	if err != nil && t.LastChance {
		<-l.lone
	}
	return lease, err
}

func (l *Leases) start(ctx, within context.Context, t *ticket) (*Lease, error) {
	s, err := l.settlerOf(t)
	if err != nil {
		return nil, err
	}
	job := t.leased(startedMark + store.ShortID(rand.Uint64())) //nolint:gosec // a name, not a secret
	for wait := minFaultWait; ; wait = min(2*wait, maxFaultWait) {
		started, err := s.startSelfDispatched(ctx, t, job)
		switch {
		case err == nil && !started:
			return nil, ErrNotStarted
		case err == nil:
			within, cancel := context.WithCancelCause(within)
			job.cancel = cancel
			if job.isSelfDispatched() {
				s.permit(within, t, job)
			} else {
				job.departed = time.Now()
			}
			s.held.hold(job)
			return &Lease{leases: l, settler: s, job: job, ctx: within}, nil
		case !mayPassSoon(err):
			return nil, err
		}
		if !sleep(ctx, wait/2+rand.N(wait/2)) { //nolint:gosec // jitter
			l.giveBack(s, job)
			return nil, err
		}
	}
}

// mayPassSoon reports whether a failed call is worth repeating here. A refused user is left to the caller.
func mayPassSoon(err error) bool {
	failure := redisconn.FailureOf(err)
	return failure != redisconn.NoFailure && failure != redisconn.Forbidden
}

// giveBack returns a job that may have been started by a call whose reply was lost. No process runs it: otherwise its lease would expire, and count
// as a crash.
func (l *Leases) giveBack(s *settler, job *leased) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return
	}
	s.held.hold(job)
	l.returns.Go(func() {
		s.settle(job, shaper.Returned(reasonNotStarted))
		<-job.ended
	})
}

// startSelfDispatched runs start.lua.
func (c *bucketConn) startSelfDispatched(ctx context.Context, t *ticket, job *leased) (started bool, err error) {
	// A canceled context would close the connection.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.store.Timeout)
	defer cancel()
	latest := int64(0)
	if job.isSelfDispatched() {
		latest = t.Slot + c.late(t).Microseconds()
	}
	var own string
	began := time.Now()
	err = c.run(call, c.store, lua.Start, nil, func(r *lua.Reader) {
		now, code := r.Int(), r.Int()
		if r.Err() == nil {
			c.clock.observe(began, time.Now(), now)
		}
		started = code == 1
		own = r.Text()
	}, t.ID, t.Epoch, t.Claim, job.claim, c.lease.Microseconds(), latest, c.pathOf(job))
	if err != nil {
		return false, fmt.Errorf("start job %q: %w", t.ID, err)
	}
	if own != "" {
		job.Own, job.unsettled = codec.ParseOwnDelivery(own)
	}
	return started, nil
}

// settlerOf returns the settler of a bucket, with the settings of the newest ticket.
func (l *Leases) settlerOf(t *ticket) (*settler, error) {
	b := t.bucket()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return nil, shaper.ErrClosed
	}
	if s := l.settlers[b.Keys]; s != nil {
		s.Settings.Store(t.settings())
		return s, nil
	}
	s := newSettler(newLeaseHolder(newBucketConn(b, l.store, t.lease(), l.life, &l.outage), &l.guard), &deaths{}, nil)
	l.settlers[b.Keys] = s
	return s, nil
}

// Context returns the context for running the job: the context of the start. It also ends when the lease is lost.
func (l *Lease) Context() context.Context { return l.ctx }

// Settle ends the lease with an outcome of any result but [shaper.ResultHandedOver], once. It returns when Redis has taken the outcome, the lease was
// lost, or [Leases.Close] was called. While Redis is unavailable it waits, and the lease is extended as soon as Redis is back. Concurrent outcomes
// share a round trip.
func (l *Lease) Settle(outcome shaper.Outcome) {
	if outcome.Result < shaper.ResultDone || outcome.Result >= shaper.ResultHandedOver {
		outcome = shaper.Retry("no_result", fmt.Sprintf("the handler answered result %d", outcome.Result))
	}
	l.settler.settle(l.job, outcome)
	<-l.job.ended
	l.job.cancel(nil)
	if l.job.lastChance {
		<-l.leases.lone
	}
}
