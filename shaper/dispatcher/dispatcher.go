// Package dispatcher drains buckets at their rate and has workers deliver their jobs.
//
// A [Dispatcher] claims jobs together with their slots, the instants at which they may depart. It hands each job to
// a worker at its slot, and settles the outcome. Any number of dispatchers share a bucket: the rate is that of
// all of them. A claim is one round trip for many jobs; so is a settlement. When Redis is down, a dispatcher
// sends what it has claimed and nothing else.
package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Defaults of a dispatcher.
const (
	DefaultConcurrency     = 256
	DefaultLease           = 30 * time.Second
	DefaultShutdownTimeout = 30 * time.Second
)

// Config is what a [Dispatcher] needs.
type Config struct {
	Redis   redis.UniversalClient // made by redisconn.Connect
	Buckets []shaper.Bucket
	Workers map[string]shaper.Worker // by the name of the bucket whose jobs they deliver

	Concurrency     int           // deliveries at a time in a bucket, in this process; 0 means 256
	Lease           time.Duration // a job of a dispatcher that died is free again after it; 0 means 30 s
	ShutdownTimeout time.Duration // how long a stop waits for deliveries; 0 means 30 s
	Timeout         time.Duration // of one call to Redis; 0 means DefaultTimeout

	// Hooks are told of the events that the buckets' Events name. They need Enqueue.
	Hooks []Hook

	// Enqueue lets the jobs of hooks and of callbacks into their buckets: the method of a producer.Client. Buckets with Callbacks need it.
	Enqueue func(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error)

	// Estimate, if not nil, says what the job of a schedule reserves of budgets. It is asked at each fire, in buckets with budgets. Else such a
	// job reserves what its bucket says.
	Estimate func(bucket string, job *shaper.Job) shaper.Units

	Logger *slog.Logger // nil logs nothing

	// Registerer is where the metrics go; nil counts nothing. Actors of one process may share it.
	Registerer prometheus.Registerer

	// Tracer, if not nil, makes a span for each attempt: "process" with the name of the bucket. It is the root of its own trace, and has a link
	// to the span in which each job was enqueued, see the Config of package producer. The worker gets the span in its context. The header
	// traceparent of a job that leaves alone is that of the span.
	Tracer trace.TracerProvider

	// SendIsParent makes the span of the enqueue the parent of each attempt at that job, in place of a link: for backends that show no links. A batch
	// of several jobs keeps its links.
	SendIsParent bool

	// Program, if not "", has the dispatcher tell the fleet what it does, and what Registerer counts, under this name and this version: see package
	// fleet. It costs a command in five seconds.
	Program, Version string

	// ReloadRefused, if not nil, returns why the program's changed configuration was refused, "" if it was not. The fleet is told.
	ReloadRefused func() string
}

// Dispatcher drains buckets at their rate and has workers deliver. Any number
// of dispatchers may drain the same buckets, in any number of processes: the
// rate is that of all together, and there is no leader.
//
// Busy, it costs one round trip for all slots of half a horizon (10 to 100 ms)
// and one for all outcomes that came meanwhile. Idle, it is woken by Redis and
// looks after its buckets every 2 s, in one round trip for all of them. While Redis is down only what was claimed
// is sent; no permit outlives permit_ttl.
type Dispatcher struct {
	cfg   Config // without Buckets, Workers and Hooks, which a reload replaces
	store *store.Store

	operator *operator.Operator // for verdicts

	shared   *store.Store // the store, for what is done for all buckets side by side
	outage   outage       // of Redis, as its loops see it
	stall    stall        // of this process
	faultLog faultLog     // of faults of its host
	skew     clockSkew    // as the patrol found it
	guard    poisonGuard  // one for all buckets: it is the process that a job may kill
	hooks    atomic.Pointer[[]Hook]
	loops    atomic.Pointer[[]*bucketLoop] // of all buckets, while it runs

	listens atomic.Bool                    // it has subscribed to wake-ups
	lost    atomic.Pointer[fleet.DataLoss] // the last loss of data of Redis, nil: none was found
	member  *fleet.Member                  // nil: it tells the fleet nothing
	spans   *attemptTracer

	scheduleWake token       // schedules are to be looked at
	allSchedules atomic.Bool // those of all buckets

	mu      sync.Mutex // of changes of hooks, loops, and the following
	workers map[string]shaper.Worker
	current *currentRun   // nil while it does not run
	gone    []*bucketLoop // have ended since the patrol last looked
}

// New checks the configuration. It does not talk to Redis yet.
func New(cfg Config) (*Dispatcher, error) {
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	cfg.Lease, cfg.ShutdownTimeout = cmp.Or(cfg.Lease, DefaultLease), cmp.Or(cfg.ShutdownTimeout, DefaultShutdownTimeout)
	if cfg.Concurrency < 1 || cfg.Concurrency > shaper.MaxConcurrency {
		return nil, fmt.Errorf("dispatcher: concurrency %d: want 1 to %d", cfg.Concurrency, shaper.MaxConcurrency)
	}
	if cfg.Lease < time.Second || cfg.Lease > time.Hour {
		return nil, fmt.Errorf("dispatcher: lease %s: want 1s to 1h", cfg.Lease)
	}
	s, err := store.New(store.Owner, cfg.Redis, cfg.Buckets, cfg.Timeout, cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, err
	}
	d := &Dispatcher{cfg: cfg, store: s, shared: s.Sharing(), workers: cfg.Workers, scheduleWake: newToken(), spans: newAttemptTracer(cfg.Tracer, cfg.SendIsParent)}
	d.stall.limit = cfg.Lease / 3
	d.outage.log, d.faultLog.log = s.Log, s.Log
	s.OnLost = d.noteLost
	d.hooks.Store(&cfg.Hooks)
	d.cfg.Buckets, d.cfg.Workers, d.cfg.Hooks = nil, nil, nil
	if d.operator, err = operator.New(operator.Config{Redis: cfg.Redis, Timeout: cfg.Timeout}); err != nil {
		return nil, err
	}
	if d.member, err = d.newMember(); err != nil {
		return nil, err
	}
	return d, d.check(cfg.Buckets, cfg.Workers, cfg.Hooks)
}

// Run drains until ctx ends, then stops in the order of the flow: it claims no
// more, waits up to ShutdownTimeout for deliveries under way, cancels the rest,
// settles, and returns nil. A fault of Redis is not the end: Run goes on when
// Redis is back.
func (d *Dispatcher) Run(ctx context.Context) error {
	// Deliveries and settling go on when ctx ends, until each loop has ended.
	// A span in ctx is not the parent of what goes on for as long as the program runs.
	life, kill := context.WithCancelCause(trace.ContextWithSpan(context.WithoutCancel(ctx), nil))
	defer kill(nil)

	c := &currentRun{ctx: ctx, life: life}
	d.mu.Lock()
	d.current = c
	d.loops.Store(&[]*bucketLoop{})
	d.staff()
	d.mu.Unlock()
	var helpers sync.WaitGroup
	helpers.Go(func() { d.listen(life) })
	helpers.Go(func() { d.stall.watch(ctx, d.store.Log) })
	helpers.Go(func() { d.patrol(ctx) })
	helpers.Go(func() { d.watchSettings(ctx) })
	helpers.Go(func() { d.fireSchedules(ctx) })
	helpers.Go(func() { d.tellFleet(life) })

	<-ctx.Done()
	d.mu.Lock()
	d.current = nil // a reload starts no loop any more
	d.mu.Unlock()
	c.running.Wait()
	kill(errStopped)
	helpers.Wait()
	return errors.Join(c.faults...)
}

var (
	errStopped   = errors.New("shaper: the dispatcher stopped")
	errLeaseLost = errors.New("shaper: the lease was lost")
)

const (
	// How long a stop waits for Redis to take the last outcomes: after the last delivery ended, within the shutdown timeout; and where that is over.
	settlePatience = 10 * time.Second
	settleGrace    = 1500 * time.Millisecond

	killGrace = 500 * time.Millisecond // and then for what was told to give up
)

// listen turns wake-ups of Redis into those of loops, until ctx ends. What it
// misses while the connection is down, patrol finds.
func (d *Dispatcher) listen(ctx context.Context) {
	sub := d.store.Redis.Subscribe(ctx, store.WakeChannel)
	defer sub.Close()
	messages := sub.ChannelWithSubscriptions()
	var known *[]*bucketLoop
	var byName map[string][]*bucketLoop
	for {
		select {
		case <-ctx.Done():
			return
		case message, ok := <-messages:
			if !ok {
				return
			}
			if loops := d.loops.Load(); loops != known {
				known, byName = loops, wokenBy(*loops)
			}
			if m, isMessage := message.(*redis.Message); isMessage {
				if bucket, ok := strings.CutPrefix(m.Payload, store.WakeSchedules); ok {
					for _, loop := range byName[bucket] {
						loop.schedules.told.Store(true)
					}
					d.scheduleWake.put()
				}
				for _, loop := range byName[m.Payload] {
					loop.news.Store(true)
					loop.claims.wake.put()
				}
				continue
			}
			d.listens.Store(true)
			for _, loop := range *d.loops.Load() { // (re)subscribed: something may have been missed. This begins the first claims
				loop.news.Store(true)
				loop.claims.wake.put()
			}
			d.lookAtAllSchedules()
		}
	}
}

// wokenBy are the loops that each wake-up is for: one of a bucket, one of a single loop, one of a pool.
func wokenBy(loops []*bucketLoop) map[string][]*bucketLoop {
	byName := make(map[string][]*bucketLoop, len(loops))
	for _, loop := range loops {
		names := []string{loop.Keys.Name, store.WakeOne(loop.Keys.Name, loop.dispatcher)}
		if loop.Keys.Pool != "" {
			names = append(names, store.WakePool+loop.Keys.Pool)
		}
		for _, name := range names {
			byName[name] = append(byName[name], loop)
		}
	}
	return byName
}
