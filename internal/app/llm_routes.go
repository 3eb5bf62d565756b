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

// llmRoutes holds the proxy routes to LLM APIs, and a worker for each of their buckets. A reload replaces the workers whose settings have changed; a
// closed worker finishes its calls.
type llmRoutes struct {
	permits *dispatcher.Permits
	leases  *dispatcher.Leases
	known   *learnedEstimates
	metrics *llm.Metrics

	mu      sync.Mutex
	open    map[string]routeWorker           // by the name of the bucket
	byRoute map[string][]httpapi.RouteBucket // by the name of the route; each bucket is a route by its own name, too
}

type routeWorker struct {
	*llm.Worker
	settings llm.Config
}

// openRoutes opens the routes of the configuration, and has them follow its reloads.
func (d *daemon) openRoutes() error {
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
	d.llmRoutes = &llmRoutes{permits: dispatcher.NewPermits(d.client, leases), leases: leases, known: &d.learnedEstimates, metrics: metrics}
	d.targets = append(d.targets, target{[]string{"buckets"}, func(_ context.Context, cfg *config.Config) error { return d.llmRoutes.follow(cfg) }})
	return d.llmRoutes.follow(d.config)
}

// follow replaces all routes by the routes of a configuration, or none of them if one cannot be opened.
func (s *llmRoutes) follow(cfg *config.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	open, buckets := map[string]routeWorker{}, map[string]httpapi.RouteBucket{}
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
		buckets[b.Name] = httpapi.RouteBucket{
			API:      &llm.Transport{Permits: s.permits, Worker: w.Worker, Bucket: b.Name, Wait: b.LLM.ProxyTimeout},
			Priority: shaper.Priority(b.LLM.ProxyPriority), FallbackAfter: b.LLM.FallbackAfter,
			FallbackModels: b.LLM.FallbackModels,
		}
	}
	if err := errors.Join(errs...); err != nil {
		closeRoutes(open, s.open)
		return err
	}
	byRoute, alone := map[string][]httpapi.RouteBucket{}, map[string][]httpapi.RouteBucket{}
	for _, b := range cfg.Buckets {
		if b.LLM == nil || !b.LLM.ServeProxy {
			continue
		}
		bucket, route := buckets[b.Name], b.LLM.RouteOf(b.Name)
		if to, ok := buckets[b.LLM.Fallback]; ok {
			bucket.Fallback = &to
		}
		byRoute[route] = append(byRoute[route], bucket)
		alone[b.Name] = []httpapi.RouteBucket{bucket}
	}
	maps.Copy(alone, byRoute) // a route has precedence over a bucket of its name
	closeRoutes(s.open, open)
	s.open, s.byRoute = open, alone
	return nil
}

// isFallback reports whether a bucket behind a route has this one as its fallback.
func isFallback(cfg *config.Config, bucket string) bool {
	return slices.ContainsFunc(cfg.Buckets, func(b config.Bucket) bool { return b.LLM != nil && b.LLM.ServeProxy && b.LLM.Fallback == bucket })
}

// worker returns the open worker with these settings, or a new one.
func (s *llmRoutes) worker(bucket string, settings llm.Config) (routeWorker, error) {
	if old, ok := s.open[bucket]; ok && reflect.DeepEqual(old.settings, settings) {
		return old, nil
	}
	w, err := llm.New(settings, s.known.learnedOf(bucket), s.metrics)
	return routeWorker{w, settings}, err
}

// closeRoutes closes the workers of some that are not in stay.
func closeRoutes(some, stay map[string]routeWorker) {
	for bucket, w := range some {
		if stay[bucket].Worker != w.Worker {
			w.Close()
		}
	}
}

// behind returns the buckets behind a route.
func (s *llmRoutes) behind(route string) []httpapi.RouteBucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byRoute[route]
}

// close waits for the calls under way.
func (s *llmRoutes) close() {
	if s == nil {
		return
	}
	s.permits.Close()
	s.leases.Close()
	closeRoutes(s.open, nil)
}
