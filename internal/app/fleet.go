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
	"github.com/tundish-io/tundish/workers/webhook"
)

// fleet is what drains the buckets, with the worker of each. A reload makes anew the workers whose settings have changed. A worker
// that is closed finishes its deliveries, and closes each connection after the last one. Tasks that wait in asynq are part of these.
type fleet struct {
	*dispatcher.Dispatcher
	lease time.Duration
	redis redis.UniversalClient // of Tundish
	open  map[string]crewed     // by the name of the bucket
	next  map[string]crewed     // those of the configuration that is being applied
}

// crewed is a worker, and the settings that it was made with.
type crewed struct {
	worker   closer
	settings checker
}

// closer is a worker that keeps connections.
type closer interface {
	shaper.Worker
	Close()
}

// fleet makes what drains the buckets.
func (d *daemon) fleet() (*fleet, error) {
	f := &fleet{lease: d.config.Dispatcher.Lease, redis: d.redis}
	if err := f.hire(d.config); err != nil {
		return nil, err
	}
	var err error
	f.Dispatcher, err = dispatcher.New(dispatcher.Config{
		Hooks: hooksOf(d.config), Enqueue: d.client.Enqueue,
		Redis: d.redis, Buckets: Buckets(d.config), Workers: f.workers(),
		Concurrency: d.config.Dispatcher.Workers(), Lease: d.config.Dispatcher.Lease,
		ShutdownTimeout: max(d.config.Dispatcher.ShutdownTimeout, time.Nanosecond), // 0 would mean the default
		Timeout:         CallTimeout(d.config), Logger: d.log, Registerer: d.registry,
	})
	if err != nil {
		f.dismiss(f.next, nil)
		return nil, err
	}
	f.open, f.next = f.next, nil
	// Workers are made first, as nothing else depends on files and addresses; they deliver when the buckets are there. The dispatcher
	// writes the settings before the client goes by them.
	d.places = f.Dispatcher
	d.targets = slices.Insert(d.targets, 0, target{nil, func(_ context.Context, cfg *config.Config) error { return f.hire(cfg) }},
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

// hire makes the workers of a configuration that differ from those that there are.
func (f *fleet) hire(cfg *config.Config) error {
	f.dismiss(f.next, f.open) // of a configuration that was not applied
	f.next = make(map[string]crewed, len(cfg.Buckets))
	for _, b := range cfg.Buckets {
		settings, _ := workerOf(cfg, b.Name)
		if old, ok := f.open[b.Name]; ok && reflect.DeepEqual(old.settings, settings) {
			f.next[b.Name] = old
			continue
		}
		worker, err := f.newWorker(settings)
		if err != nil {
			f.dismiss(f.next, f.open)
			f.next = nil
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		}
		f.next[b.Name] = crewed{worker, settings}
	}
	return nil
}

// follow has the dispatcher drain the buckets of a configuration with the workers that were made for it.
func (f *fleet) follow(cfg *config.Config) error {
	if err := f.Reconfigure(Buckets(cfg), f.workers(), hooksOf(cfg)); err != nil {
		return err
	}
	f.dismiss(f.open, f.next)
	f.open, f.next = f.next, nil
	return nil
}

func (f *fleet) close() { f.dismiss(f.open, nil) }

// dismiss closes workers that are not among those that stay.
func (f *fleet) dismiss(some, stay map[string]crewed) {
	for name, c := range some {
		if stay[name].worker != c.worker {
			c.worker.Close()
		}
	}
}

func (f *fleet) workers() map[string]shaper.Worker {
	workers := make(map[string]shaper.Worker, len(f.next))
	for name, c := range f.next {
		workers[name] = c.worker
	}
	return workers
}

// newWorker makes the worker of these settings. The lease is that of the process: a reload may find another one in the file.
func (f *fleet) newWorker(settings checker) (closer, error) {
	var timeout time.Duration
	var worker closer
	var err error
	switch s := settings.(type) {
	case httpworker.Config:
		timeout = s.Timeout
		worker, err = httpworker.New(s)
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

func hooksOf(cfg *config.Config) []dispatcher.Hook {
	hooks := make([]dispatcher.Hook, len(cfg.Hooks))
	for i, h := range cfg.Hooks {
		hooks[i] = dispatcher.Hook(h)
	}
	return hooks
}
