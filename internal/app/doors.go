package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/workers/llm"
)

// doors are the proxy routes of the producer's API, with a worker for each of their buckets. A reload replaces the workers whose settings have changed;
// a closed worker finishes its calls.
type doors struct {
	permits *dispatcher.Permits
	leases  *dispatcher.Leases
	known   *lessons
	metrics *llm.Metrics

	mu     sync.Mutex
	open   map[string]doorWorker           // by the name of the bucket
	byDoor map[string][]httpapi.DoorBucket // a bucket of a route is also a route by its own name
}

type doorWorker struct {
	*llm.Worker
	settings llm.Config
}

// openDoors opens the proxy routes of the configuration, and follows its reloads.
func (d *daemon) openDoors() error {
	metrics, err := d.llmMetrics()
	if err != nil {
		return err
	}
	leases, err := dispatcher.NewLeases(dispatcher.LeasesConfig{
		Redis: d.redis, Timeout: d.config.Producer.StoreTimeout, Logger: d.log, Registerer: d.registry,
		Tracer: d.tracing.Provider(), SendIsParent: d.config.Tracing.SendIsParent(),
	})
	if err != nil {
		return err
	}
	d.doors = &doors{permits: dispatcher.NewPermits(d.client, leases), leases: leases, known: &d.lessons, metrics: metrics}
	d.targets = append(d.targets, target{[]string{"buckets"}, func(_ context.Context, cfg *config.Config) error { return d.doors.follow(cfg) }})
	return d.doors.follow(d.config)
}

// follow applies the proxy routes of a configuration, or none of them if one cannot be opened.
func (s *doors) follow(cfg *config.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	open, buckets := map[string]doorWorker{}, map[string]httpapi.DoorBucket{}
	var errs []error
	for _, b := range cfg.Buckets {
		if b.LLM == nil || !b.LLM.ServeProxy && !isFallback(cfg, b.Name) {
			continue
		}
		w, err := s.worker(b.Name, llmConfig(cfg, b))
		if err != nil {
			errs = append(errs, fmt.Errorf("bucket %q: %w", b.Name, err))
			continue
		}
		open[b.Name] = w
		buckets[b.Name] = httpapi.DoorBucket{
			API:      &llm.Transport{Permits: s.permits, Worker: w.Worker, Bucket: b.Name, Wait: b.LLM.ProxyTimeout},
			Priority: shaper.Priority(b.LLM.ProxyPriority), FallbackAfter: b.LLM.FallbackAfter,
			FallbackModels: b.LLM.FallbackModels,
		}
	}
	if err := errors.Join(errs...); err != nil {
		closeDoors(open, s.open)
		return err
	}
	byDoor, alone := map[string][]httpapi.DoorBucket{}, map[string][]httpapi.DoorBucket{}
	for _, b := range cfg.Buckets {
		if b.LLM == nil || !b.LLM.ServeProxy {
			continue
		}
		bucket, door := buckets[b.Name], b.LLM.DoorOf(b.Name)
		if to, ok := buckets[b.LLM.Fallback]; ok {
			bucket.Fallback = &to
		}
		byDoor[door] = append(byDoor[door], bucket)
		alone[b.Name] = []httpapi.DoorBucket{bucket}
	}
	maps.Copy(alone, byDoor) // a route takes precedence over a bucket with its name
	closeDoors(s.open, open)
	s.open, s.byDoor = open, alone
	return nil
}

// isFallback reports whether a bucket of a proxy route falls back on this one.
func isFallback(cfg *config.Config, bucket string) bool {
	return slices.ContainsFunc(cfg.Buckets, func(b config.Bucket) bool { return b.LLM != nil && b.LLM.ServeProxy && b.LLM.Fallback == bucket })
}

// worker is the open one of these settings, or a new one.
func (s *doors) worker(bucket string, settings llm.Config) (doorWorker, error) {
	if old, ok := s.open[bucket]; ok && reflect.DeepEqual(old.settings, settings) {
		return old, nil
	}
	w, err := llm.New(settings, s.known.of(bucket), s.metrics)
	return doorWorker{w, settings}, err
}

// closeDoors closes the workers that do not stay.
func closeDoors(some, stay map[string]doorWorker) {
	for bucket, w := range some {
		if stay[bucket].Worker != w.Worker {
			w.Close()
		}
	}
}

// behind returns the buckets of a proxy route.
func (s *doors) behind(door string) []httpapi.DoorBucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byDoor[door]
}

// close waits for the calls that go on.
func (s *doors) close() {
	if s == nil {
		return
	}
	s.permits.Close()
	s.leases.Close()
	closeDoors(s.open, nil)
}
