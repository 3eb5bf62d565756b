// Package dispatcher drains buckets at their rate and has workers deliver their jobs.
//
// A [Dispatcher] claims jobs together with their slots, the instants at which they may depart. It hands each job to
// a worker at its slot, and settles the outcome. Any number of dispatchers share a bucket: the rate is that of
// all of them. A claim is one round trip for many jobs; so is a settlement. When Redis is down, a dispatcher
// sends what it has claimed and nothing else.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
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

	Logger *slog.Logger // nil logs nothing

	// Registerer is where the metrics go; nil counts nothing. Actors of one process may share it.
	Registerer prometheus.Registerer
}

// Dispatcher drains buckets at their rate and has workers deliver. Any number
// of dispatchers may drain the same buckets, in any number of processes: the
// rate is that of all together, and there is no leader.
//
// Busy, it costs one round trip for all slots of half a horizon (10 to 100 ms)
// and one for all outcomes that came meanwhile. Idle, it is woken by Redis and
// looks after its buckets every 2 s. While Redis is down only what was claimed
// is sent; no permit outlives permit_ttl.
type Dispatcher struct {
	cfg   Config
	store *store.Store
	id    string

	outage outage      // of Redis, as its drains see it
	guard  poisonGuard // one for all buckets: it is the process that a job may kill
	drains atomic.Pointer[[]*drain]
}

// New checks the configuration. It does not talk to Redis yet.
func New(cfg Config) (*Dispatcher, error) {
	if cfg.Concurrency == 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = DefaultShutdownTimeout
	}
	if cfg.Concurrency < 1 || cfg.Concurrency > shaper.MaxConcurrency {
		return nil, fmt.Errorf("dispatcher: concurrency %d: want 1 to %d", cfg.Concurrency, shaper.MaxConcurrency)
	}
	if cfg.Lease < time.Second || cfg.Lease > time.Hour {
		return nil, fmt.Errorf("dispatcher: lease %s: want 1s to 1h", cfg.Lease)
	}
	if len(cfg.Hooks) > 0 && cfg.Enqueue == nil {
		return nil, errors.New("dispatcher: there are Hooks, and no Enqueue for their jobs: give the method of a producer.Client")
	}
	if i := slices.IndexFunc(cfg.Buckets, func(b shaper.Bucket) bool { return b.Callbacks.Bucket != "" }); i >= 0 && cfg.Enqueue == nil {
		return nil, fmt.Errorf("dispatcher: bucket %q has Callbacks, and there is no Enqueue for their jobs: give the method of a producer.Client", cfg.Buckets[i].Name)
	}
	s, err := store.New(cfg.Redis, cfg.Buckets, cfg.Timeout, cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, err
	}
	for _, name := range s.Order {
		if cfg.Workers[name] == nil {
			return nil, fmt.Errorf("bucket %q: no worker is registered: name one in Workers", name)
		}
	}
	return &Dispatcher{cfg: cfg, store: s, id: store.ShortID(rand.Uint64())}, nil //nolint:gosec // a name, not a secret
}

// Reconfigure replaces the settings of buckets that the dispatcher drains; those
// that it does not are left out. What the scripts obey is written at once, for
// all processes, unless a higher revision is in force there. It changes nothing
// and returns an error if a bucket is not valid. The worker of a bucket stays.
func (d *Dispatcher) Reconfigure(buckets []shaper.Bucket) error {
	if err := d.store.Reconfigure(buckets); err != nil {
		return err
	}
	if drains := d.drains.Load(); drains != nil {
		for _, drain := range *drains {
			drain.nudge() // its next claim writes them
		}
	}
	return nil
}

// Run drains until ctx ends, then stops in the order of the flow: it claims no
// more, waits up to ShutdownTimeout for deliveries under way, cancels the rest,
// settles, and returns nil. A fault of Redis is not the end: Run goes on when
// Redis is back.
func (d *Dispatcher) Run(ctx context.Context) error {
	// Deliveries and settling go on when ctx ends, until stop says so.
	life, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)

	drains := make([]*drain, 0, len(d.store.Order))
	for _, name := range d.store.Order {
		drains = append(drains, newDrain(d, d.store.Buckets[name], life))
	}
	d.drains.Store(&drains)
	var loops, helpers sync.WaitGroup
	for _, drain := range drains {
		loops.Go(func() { drain.loop(ctx) })
		helpers.Go(func() { drain.heartbeat(life) })
		if d.cfg.Enqueue != nil {
			helpers.Go(func() { drain.tellCallbacks(ctx) })
		}
	}
	helpers.Go(func() { d.listen(life, drains) })
	helpers.Go(func() { d.patrol(ctx, drains) })

	<-ctx.Done()
	loops.Wait()
	err := d.finish(drains, kill)
	tellLast(life, drains)
	kill(errStopped)
	helpers.Wait()
	return err
}

var (
	errStopped   = errors.New("shaper: the dispatcher stopped")
	errLeaseLost = errors.New("shaper: the lease was lost")
)

const (
	settleGrace = 5 * time.Second // how long a stop waits for Redis to take the last outcomes
	killGrace   = time.Second     // and then for what was told to give up
)

// finish waits for deliveries, cancels those that take too long, and sees
// their outcomes into Redis.
func (d *Dispatcher) finish(drains []*drain, kill context.CancelCauseFunc) error {
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		for _, drain := range drains {
			drain.deliveries.Wait()
			drain.settler.Wait()
		}
	}()
	timer := time.NewTimer(d.cfg.ShutdownTimeout)
	defer timer.Stop()
	select {
	case <-idle:
		return nil
	case <-timer.C:
	}
	cut := 0
	for _, drain := range drains {
		cut += drain.interrupt()
	}
	d.store.Log.Warn("deliveries did not end in time and were cut off", "count", cut, "shutdown_timeout", d.cfg.ShutdownTimeout)
	timer.Reset(settleGrace)
	select {
	case <-idle:
		return nil
	case <-timer.C:
	}
	kill(errStopped)
	timer.Reset(killGrace)
	select {
	case <-idle:
		return fmt.Errorf("dispatcher: Redis did not take the last outcomes within %s: their jobs are delivered again when their leases end", settleGrace)
	case <-timer.C:
		return errors.New("dispatcher: deliveries go on though they were told to end: a worker ignores its context")
	}
}

// listen turns wake-ups of Redis into those of drains, until ctx ends. What it
// misses while the connection is down, patrol finds.
func (d *Dispatcher) listen(ctx context.Context, drains []*drain) {
	byName := make(map[string][]*drain, len(drains)) // also all of a pool, by its name
	for _, drain := range drains {
		one := store.WakeOne(drain.Name, d.id)
		byName[drain.Name], byName[one] = append(byName[drain.Name], drain), append(byName[one], drain)
		if p := drain.Settings.Load().Pool; p != nil {
			byName[store.WakePool+p.Name] = append(byName[store.WakePool+p.Name], drain)
		}
	}
	sub := d.store.Redis.Subscribe(ctx, store.WakeChannel)
	defer sub.Close()
	messages := sub.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return
		case message, ok := <-messages:
			if !ok {
				return
			}
			if m, isMessage := message.(*redis.Message); isMessage {
				for _, drain := range byName[m.Payload] {
					drain.nudge()
				}
				continue
			}
			for _, drain := range drains { // (re)subscribed: something may have been missed
				drain.nudge()
			}
		}
	}
}
