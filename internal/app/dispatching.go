package app

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/llm"
	"github.com/tundish-io/tundish/workers/webhook"
)

// dispatching is the dispatcher with a worker for each bucket. A reload replaces the workers whose settings have changed. A closed worker finishes its
// deliveries, also tasks that wait in asynq, and closes each connection after the last one.
type dispatching struct {
	*dispatcher.Dispatcher
	lease time.Duration
	known *learnedEstimates
	redis redis.UniversalClient  // of Tundish
	open  map[string]builtWorker // by the name of the bucket
	next  map[string]builtWorker // of the configuration that is being applied

	metrics *llm.Metrics
}

// builtWorker is a worker, and the settings that it was made with.
type builtWorker struct {
	worker   closer
	settings checker
}

// closer is a worker that keeps connections.
type closer interface {
	shaper.Worker
	Close()
}

// dispatching makes the dispatcher and its workers.
func (d *daemon) dispatching() (*dispatching, error) {
	metrics, err := d.llmMetrics()
	if err != nil {
		return nil, err
	}
	f := &dispatching{lease: d.config.Dispatcher.Lease, known: &d.learnedEstimates, redis: d.redis, metrics: metrics}
	if err := f.openWorkers(d.config); err != nil {
		return nil, err
	}
	f.Dispatcher, err = dispatcher.New(dispatcher.Config{
		Hooks: hooksOf(d.config), Enqueue: d.client.Enqueue, Estimate: d.estimate,
		Redis: d.redis, Buckets: dispatched(d.config), Workers: f.workers(),
		Concurrency: d.config.Dispatcher.Workers(), Lease: d.config.Dispatcher.Lease,
		ShutdownTimeout: max(d.config.Dispatcher.ShutdownTimeout, time.Nanosecond), // 0 would mean the default
		Timeout:         d.config.CallTimeout(), Logger: d.log, Registerer: d.registry, Program: "dispatcher", Version: d.version, ReloadRefused: d.reloadRefused,
		Tracer: d.tracing.Provider(), SendIsParent: d.config.Tracing.SendIsParent(),
	})
	if err != nil {
		f.closeWorkers(f.next, nil)
		return nil, err
	}
	f.open, f.next = f.next, nil
	// Workers are made first, because nothing else depends on files and addresses; they deliver once the buckets exist. The dispatcher writes the
	// settings before the client uses them.
	d.places = f.Dispatcher
	d.targets = slices.Insert(d.targets, 0, target{nil, func(_ context.Context, cfg *config.Config) error { return f.openWorkers(cfg) }},
		target{bucketPaths, func(ctx context.Context, cfg *config.Config) error {
			if err := d.checkPools(ctx, f.Dispatcher, cfg); err != nil {
				return err
			}
			if err := f.follow(cfg); err != nil {
				return err
			}
			return d.writeBuckets(ctx, f.Dispatcher)
		}})
	return f, nil
}

// openWorkers makes the workers of a configuration whose settings differ from the current ones.
func (f *dispatching) openWorkers(cfg *config.Config) error {
	f.closeWorkers(f.next, f.open) // of a configuration that was not applied
	f.next = make(map[string]builtWorker, len(cfg.Buckets))
	for _, b := range cfg.Buckets {
		if b.ByProgram() {
			continue
		}
		settings := settingsOf(cfg, b)
		if old, ok := f.open[b.Name]; ok && reflect.DeepEqual(old.settings, settings) {
			f.next[b.Name] = old
			continue
		}
		worker, err := f.newWorker(b.Name, settings)
		if err != nil {
			f.closeWorkers(f.next, f.open)
			f.next = nil
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		}
		f.next[b.Name] = builtWorker{worker, settings}
	}
	return nil
}

// follow makes the dispatcher work the buckets of a configuration, with the workers that were made for it.
func (f *dispatching) follow(cfg *config.Config) error {
	if err := f.Reconfigure(dispatched(cfg), f.workers(), hooksOf(cfg)); err != nil {
		return err
	}
	f.closeWorkers(f.open, f.next)
	f.open, f.next = f.next, nil
	return nil
}

func (f *dispatching) close() { f.closeWorkers(f.open, nil) }

// closeWorkers closes the workers that do not stay.
func (f *dispatching) closeWorkers(some, stay map[string]builtWorker) {
	for name, c := range some {
		if stay[name].worker != c.worker {
			c.worker.Close()
		}
	}
}

func (f *dispatching) workers() map[string]shaper.Worker {
	workers := make(map[string]shaper.Worker, len(f.next))
	for name, c := range f.next {
		workers[name] = c.worker
	}
	return workers
}

// newWorker makes the worker of a bucket with these settings. The lease is the process's: a reload may find another one in the file.
func (f *dispatching) newWorker(bucket string, settings checker) (closer, error) {
	var timeout time.Duration
	var worker closer
	var err error
	switch s := settings.(type) {
	case httpworker.Config:
		timeout = s.Timeout
		worker, err = httpworker.New(s)
	case llm.Config: // its calls may take longer than a lease, which the heartbeat extends
		worker, err = llm.New(s, f.known.learnedOf(bucket), f.metrics)
	case webhook.Config:
		timeout = s.Timeout
		worker, err = webhook.New(s)
	case asynqSettings:
		worker, err = s.worker(f.redis)
	}
	if err == nil && timeout > f.lease {
		err = fmt.Errorf("timeout %s: want at most dispatcher.lease, which is %s until the dispatcher restarts", timeout, f.lease)
	}
	if err != nil {
		return nil, err
	}
	return worker, nil
}

// dispatched are the buckets that this process works: all but those that a program of the user's does.
func dispatched(cfg *config.Config) []shaper.Bucket {
	var buckets []shaper.Bucket
	for _, b := range cfg.Buckets {
		if !b.ByProgram() {
			buckets = append(buckets, b.Bucket)
		}
	}
	return buckets
}

func hooksOf(cfg *config.Config) []dispatcher.Hook {
	hooks := make([]dispatcher.Hook, len(cfg.Hooks))
	for i, h := range cfg.Hooks {
		hooks[i] = dispatcher.Hook(h)
	}
	return hooks
}
