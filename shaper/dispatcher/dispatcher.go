// Package dispatcher drains buckets at their rate and makes workers deliver their jobs.
//
// A [Dispatcher] claims jobs together with their slots, the instants at which they may depart. It hands each job to a worker at its slot, and settles
// the outcome. Any number of dispatchers share a bucket and its rate. A claim is one round trip for many jobs; so is a settlement. When Redis is
// down, a dispatcher sends only the jobs that it has claimed.
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
	Lease           time.Duration // after which the jobs of a dispatcher that died are free again; 0 means 30 s
	ShutdownTimeout time.Duration // how long a stop waits for deliveries; 0 means 30 s
	Timeout         time.Duration // of one call to Redis; 0 means DefaultTimeout

	// Hooks receive the events that the buckets' Events name. They need Enqueue.
	Hooks []Hook

	// Enqueue enqueues the jobs of hooks and of callbacks: the method of a producer.Client. Buckets with Callbacks need it.
	Enqueue func(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error)

	// Estimate, if not nil, returns what the job of a schedule reserves of budgets. It is called at each fire, in buckets with budgets. Otherwise
	// such a job reserves its bucket's default.
	Estimate func(bucket string, job *shaper.Job) shaper.Units

	Logger *slog.Logger // nil logs nothing

	// Registerer registers the metrics; nil counts nothing. Actors of one process may share it.
	Registerer prometheus.Registerer

	// Tracer, if not nil, makes a span for each attempt: "process" with the name of the bucket. It is the root of its own trace, with a link to the
	// span in which each job was enqueued: see the Config of package producer. The worker gets the span in its context. A job that is sent alone
	// carries the span in its traceparent header.
	Tracer trace.TracerProvider

	// SendIsParent makes the span of the enqueue the parent of each attempt, in place of a link: for backends that show no links. A batch of several
	// jobs keeps its links.
	SendIsParent bool

	// Program, if not "", makes the dispatcher a member of the fleet under this name and version: it reports its state and the counts of Registerer,
	// see package fleet. That costs one command every five seconds.
	Program, Version string

	// ReloadRefused, if not nil, returns why the program's changed configuration was refused, "" if it was not. The fleet sees the reason.
	ReloadRefused func() string
}

// Dispatcher drains buckets at their rate and makes workers deliver. Any number of dispatchers, in any number of processes, may drain the same
// buckets: they share the rate, and there is no leader.
//
// A busy dispatcher makes one round trip for all slots of half a horizon (10 to 100 ms), and one for all outcomes of that time. An idle one is woken
// by Redis, and checks all of its buckets every 2 s in one round trip. While Redis is down it sends only claimed jobs; no permit outlives permit_ttl.
type Dispatcher struct {
	cfg   Config // without Buckets, Workers and Hooks, which a reload replaces
	store *store.Store

	operator *operator.Operator // for verdicts

	shared   *store.Store // the store, for scripts of many buckets that share round trips
	outage   outage       // of Redis, as the bucket loops see it
	stall    stall        // of this process
	faultLog faultLog     // of faults of its host
	skew     clockSkew    // as the patrol found it
	guard    poisonGuard  // one for all buckets, as a job may kill the whole process
	hooks    atomic.Pointer[[]Hook]
	loops    atomic.Pointer[[]*bucketLoop] // of all buckets, while it runs

	listens atomic.Bool                    // whether it has subscribed to wake-ups
	lost    atomic.Pointer[fleet.DataLoss] // the last loss of data of Redis; nil: none was found
	member  *fleet.Member                  // nil: it is no member of the fleet
	spans   *attemptTracer

	scheduleWake token       // some schedules have to be checked
	allSchedules atomic.Bool // the schedules of all buckets have to be

	mu      sync.Mutex // guards changes of hooks and loops, and the following
	workers map[string]shaper.Worker
	current *currentRun   // nil while it does not run
	gone    []*bucketLoop // loops that have ended since the last round of the patrol
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
	s, err := store.New(store.Authoritative, cfg.Redis, cfg.Buckets, cfg.Timeout, cfg.Logger, cfg.Registerer)
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

// Run drains until ctx ends. Then it stops claiming, waits up to ShutdownTimeout for deliveries under way, cancels the rest, settles, and returns
// nil. It outlives faults of Redis: it continues when Redis is back.
func (d *Dispatcher) Run(ctx context.Context) error {
	// Deliveries and settling continue after ctx ends, until each loop has ended. A span in ctx must not be the parent of work that lasts as long as
	// the program.
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
	d.current = nil // no reload starts a loop any more
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
	// How long a stop waits for Redis to take the last outcomes: settlePatience within the shutdown timeout, settleGrace once that is over.
	settlePatience = 10 * time.Second
	settleGrace    = 1500 * time.Millisecond

	killGrace = 500 * time.Millisecond // then, for what was cancelled
)

// listen passes wake-ups from Redis to bucket loops until ctx ends. The patrol finds what it misses while the connection is down.
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
						loop.schedules.changed.Store(true)
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
			for _, loop := range *d.loops.Load() { // (re)subscribed: wake-ups may have been missed. This starts the first claims
				loop.news.Store(true)
				loop.claims.wake.put()
			}
			d.lookAtAllSchedules()
		}
	}
}

// wokenBy maps each wake-up to its loops: all loops of a bucket, a single loop, or all loops of a pool.
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
