package httpapi

import (
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/admission/httplimit"
)

// NewProducer returns the producer's API: jobs come in, are looked at and
// cancelled, limits are asked, looked at and changed. It serves /livez, /readyz,
// /metrics and /openapi.yaml too.
func NewProducer(cfg ProducerConfig) *Handler {
	log := orDiscard(cfg.Logger)
	p := &producer{
		jobs: cfg.Jobs, checkJob: cfg.CheckJob, store: newStoreFaults(log), log: log, limits: cfg.Limits, overrides: cfg.BucketLimits,
		headers: cfg.RateLimitHeaders, proxies: cfg.Proxy,
		access: newAccess(cfg.Keys, httplimit.Proxies{
			Trusted: cfg.TrustedProxies, Header: cfg.ForwardedHeader, IPv6Prefix: cfg.IPv6Prefix,
		}),
	}
	draining := newDraining()
	p.draining = draining
	probes := &probes{store: newPulse(cfg.Jobs), draining: draining, gatherer: cfg.Metrics, log: log}
	routes := slices.Concat(p.routes(), p.oneJob().routes(), probes.routes())
	var o *ops
	if cfg.Operator != nil {
		o = newOps(cfg.Operator, cfg.Pools, fmt.Sprintf(byPrograms, "producer"), log)
		routes = append(routes, o.routes()...)
	}
	var elsewhere map[string][]route
	if o == nil {
		elsewhere = map[string][]route{operatorAPI: (&ops{}).routes()}
	}
	h := newHandler(routes, elsewhere, p.access, cfg.BodyMemory, draining, log)
	h.ops = o
	return h
}

func (p *producer) routes() []route {
	return []route{
		{"POST", "/v1/buckets/{bucket}/jobs", p.enqueue, roles(RoleEnqueue)},
		{"POST", "/v1/buckets/{bucket}/jobs/batch", p.enqueueBatch, roles(RoleEnqueue)},
		{"", proxyPath + "{bucket}", p.proxy, rights{roles: []Role{RoleEnqueue}, clientKey: true}},
		{"", "/v1/limits/{limit}/check", p.checkLimit, roles(RoleCheck)},
		{"", "/v1/limits/{limit}/check/{original...}", p.checkForGateway, roles(RoleCheck)},
		{"GET", "/v1/limits", p.listLimits, roles(RoleRead)},
		{"GET", "/v1/limits/{limit}", p.showLimit, roles(RoleRead)},
		{"PATCH", "/v1/limits/{limit}", p.changeLimit, rights{roles: []Role{RoleAdmin}, allBuckets: true}},
		{"DELETE", "/v1/limits/{limit}/override", p.resetLimit, rights{roles: []Role{RoleAdmin}, allBuckets: true}},
	}
}
