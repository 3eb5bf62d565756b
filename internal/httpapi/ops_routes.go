package httpapi

import (
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/opsview"
)

// NewOps returns the operator's API: buckets and pools in numbers, what changes them
// at run time, and /livez, /readyz, /metrics and /openapi.yaml. Without keys only requests from this
// machine are served.
func NewOps(cfg OpsConfig) *Handler {
	log := orDiscard(cfg.Logger)
	o := newOps(cfg.Buckets, cfg.Pools, fmt.Sprintf(byPrograms, "dispatcher"), log)
	draining := newDraining()
	probes := &probes{store: newPulse(cfg.Buckets), draining: draining, gatherer: cfg.Metrics, log: log}
	routes := slices.Concat(o.routes(), o.oneJob().routes(), probes.routes())
	if cfg.Sink {
		routes = append(routes, (&sink{log: log}).routes()...)
	}
	h := newHandler(routes, map[string][]route{producerAPI: (&producer{}).routes()}, newAccess(cfg.Keys, httplimit.Proxies{}), DefaultBodyMemory, draining, log)
	h.ops = o
	return h
}

// Where the routes of the two programs are served.
const (
	producerAPI = "the API of the producer (producer.listen, by default port 8080)"
	operatorAPI = "the operator's API, that of the dispatcher (dispatcher.listen, by default port 8081); the producer has it, too, with producer.operator_api = true"
)

func (o *ops) routes() []route {
	return append([]route{
		{"GET", "/v1/buckets", o.listBuckets, roles(RoleRead)},
		{"GET", "/v1/buckets/{bucket}", o.showBucket, roles(RoleRead)},
	}, slices.Concat(o.controlRoutes(), o.jobRoutes(), o.poolRoutes(), o.scheduleRoutes(), o.partRoutes(opsview.Flows()), o.partRoutes(opsview.Groups()))...)
}

func (o *ops) controlRoutes() []route {
	admin := roles(RoleAdmin)
	return []route{
		{"PATCH", "/v1/buckets/{bucket}", setting(o.changeBucket), admin},
		{"DELETE", "/v1/buckets/{bucket}/overrides", resetting(o.changeBucket), admin},
		{"DELETE", "/v1/buckets/{bucket}/overrides/{setting}", resetting(o.changeBucket), admin},
		{"POST", "/v1/buckets/{bucket}/pause", o.pauseBucket, admin},
		{"POST", "/v1/buckets/{bucket}/resume", o.resumeBucket, admin},
		{"POST", "/v1/buckets/{bucket}/drain", o.drainBucket, admin},
		{"DELETE", "/v1/buckets/{bucket}/drain", o.stopDrain, admin},
		{"POST", "/v1/buckets/{bucket}/release", o.releaseBucket, admin},
		{"POST", "/v1/buckets/{bucket}/purge", o.purgeBucket, admin},
	}
}
