package httpapi

import (
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/admission/httplimit"
)

// NewProducer returns the producer's API: it enqueues, shows and cancels jobs, and checks, shows and changes limits. It serves /livez, /readyz, /metrics
// and /openapi.yaml too.
func NewProducer(cfg ProducerConfig) *Handler {
	log := orDiscard(cfg.Logger)
	p := &producer{
		jobs: cfg.Jobs, checkJob: cfg.CheckJob, callbacks: cfg.CheckCallbacks, estimate: cfg.Estimate, store: newStoreFaults(log), log: log, limits: cfg.Limits, overrides: cfg.BucketLimits,
		headers: cfg.RateLimitHeaders, proxies: cfg.Proxy, hostFault: cfg.HostFault,
		access: newAccess(cfg.Keys, httplimit.Proxies{
			Trusted: cfg.TrustedProxies, Header: cfg.ForwardedHeader, IPv6Prefix: cfg.IPv6Prefix,
		}, log, cfg.WrongKeys, cfg.Forbidden),
	}
	p.access.currentName = func(bucket string) string { return cfg.Jobs.CurrentName(bucket) }
	if cfg.LLMRoutes != nil {
		p.llmRoutes = cfg.LLMRoutes.orFirstNames(cfg.Jobs)
	}
	draining := newDraining()
	p.draining = draining
	var o *ops
	if cfg.Operator != nil {
		o = newOps(cfg.Operator, cfg.Pools, cfg.Keys, fmt.Sprintf(byPrograms, "producer"), draining, log)
	}
	records := cfg.Audit
	if o != nil {
		records, o.limits, o.access, o.sessions = o.records, p.limitOps(), p.access, cfg.Sessions
	}
	rec := newRecorder(o, records, fmt.Sprintf(byPrograms, "producer"), p.access.address, log)
	probes := &probes{store: newPulse(cfg.Jobs), servesAlone: cfg.ServesAlone, draining: draining, gatherer: cfg.Metrics, exemplars: cfg.Exemplars, log: log}
	routes := rec.routes(slices.Concat(p.routes(), p.limitOps().routes(), p.oneJob().routes(), p.bundles().routes(), probes.routes()), false)
	if o != nil {
		routes = append(routes, rec.routes(o.routes(), true)...)
	}
	var elsewhere map[string][]route
	if o == nil {
		elsewhere = map[string][]route{operatorAPI: (&ops{}).routes()}
	}
	h := newHandler(routes, elsewhere, p.access, newBounds("producer.max_connections", cfg.MaxConnections, cfg.BodyMemory, p.access.address), draining, log)
	h.ops, h.idleTimeout = o, cfg.IdleTimeout
	if p.llmRoutes != nil {
		h.Handler = inFormOfRoutes(p.llmRoutes, h.Handler)
	}
	return h
}

// NewOps returns the operator's API: the state of buckets, pools and limits, their changes at run time, and /livez, /readyz, /metrics and /openapi.yaml.
// Without keys only requests from this machine are served.
func NewOps(cfg OpsConfig) *Handler {
	log := orDiscard(cfg.Logger)
	draining := newDraining()
	o := newOps(cfg.Buckets, cfg.Pools, cfg.Keys, fmt.Sprintf(byPrograms, "dispatcher"), draining, log)
	o.limits, o.callbacks = limitOps{cfg.Limits, cfg.BucketLimits, o.store, log}, cfg.CheckCallbacks
	probes := &probes{store: o.pulse, draining: draining, gatherer: cfg.Metrics, exemplars: cfg.Exemplars, log: log}
	a := newAccess(cfg.Keys, httplimit.Proxies{}, log, cfg.WrongKeys, cfg.Forbidden)
	o.access, o.sessions = a, cfg.Sessions
	a.currentName = func(bucket string) string { return cfg.Buckets.CurrentName(bucket) }
	rec := newRecorder(o, o.records, o.author, a.address, log)
	routes := rec.routes(slices.Concat(o.routes(), o.limits.routes(), o.oneJob().routes(), o.bundles().routes(), probes.routes()), true)
	if cfg.Sink {
		routes = append(routes, (&sink{log: log}).routes()...)
	}
	pages, bindPages := cfg.Pages.routes(a)
	routes = append(routes, pages...)
	h := newHandler(routes, map[string][]route{producerAPI: (&producer{}).routes()}, a, newBounds("", 0, 0, a.address), draining, log)
	h.ops, h.idleTimeout = o, cfg.IdleTimeout
	bindPages(h)
	return h
}

// The programs that serve the routes.
const (
	producerAPI = "the API of the producer (producer.listen, by default port 8080)"
	operatorAPI = "the operator's API, which the dispatcher serves (dispatcher.listen, by default port 8081); the producer serves it, too, with producer.operator_api = true"
)
