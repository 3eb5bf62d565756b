package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Buckets are the methods of [*operator.Operator] that the operator's API calls.
type Buckets interface {
	Pinger
	Buckets() []string
	KnownBuckets(ctx context.Context) ([]string, error)
	BucketInfos(ctx context.Context, names ...string) ([]operator.BucketInfo, error)
	Pools() []string
	KnownPools(ctx context.Context) ([]string, error)
	PoolDetails(ctx context.Context, names ...string) ([]operator.PoolDetails, error)
	As(author string) operator.Author
	Bucket(name string) operator.Bucket
}

// OpsConfig configures the operator's API.
type OpsConfig struct {
	Buckets Buckets
	Keys    []Key               // the API keys; without any, only programs of this machine are served
	Metrics prometheus.Gatherer // what /metrics shows; nil shows none
	Logger  *slog.Logger        // nil logs nothing

	// Sink adds POST /sink, a receiver to try things out with: it logs what
	// arrives.
	Sink bool
}

// ops serves the routes by which buckets are looked at and controlled.
type ops struct {
	buckets Buckets
	store   *storeFaults
	access  *access
}

// NewOps returns the operator's API: buckets and pools in numbers, what changes them
// at run time, and /livez, /readyz, /metrics and /openapi.yaml. Without keys only requests from this
// machine are served.
func NewOps(cfg OpsConfig) *Handler {
	log := orDiscard(cfg.Logger)
	o := &ops{buckets: cfg.Buckets, store: newStoreFaults(log), access: newAccess(cfg.Keys, httplimit.Proxies{})}
	draining := newDraining()
	probes := &probes{store: newPulse(cfg.Buckets), draining: draining, gatherer: cfg.Metrics, log: log}
	routes := append(o.routes(), probes.routes()...)
	if cfg.Sink {
		routes = append(routes, (&sink{log: log}).routes()...)
	}
	return newHandler(routes, o.access, DefaultBodyMemory, draining, log)
}

func (o *ops) routes() []route {
	return append([]route{
		{"GET", "/v1/buckets", o.listBuckets, roles(RoleRead)},
		{"GET", "/v1/buckets/{bucket}", o.showBucket, roles(RoleRead)},
	}, slices.Concat(o.controlRoutes(), o.jobRoutes(), o.poolRoutes(), o.partRoutes(opsview.Flows()), o.partRoutes(opsview.Groups()))...)
}

// bucketView is a bucket in numbers. The settings in force are absent until
// something has used the bucket.
type bucketView struct {
	Name       string `json:"name"`
	Orphaned   bool   `json:"orphaned"` // Redis knows it, the configuration does not
	Revision   *int64 `json:"revision,omitempty"`
	Rate       string `json:"rate,omitempty"`
	Burst      int64  `json:"burst,omitempty"`
	Capacity   int64  `json:"capacity,omitempty"`
	Unfinished int64  `json:"unfinished"`

	Waiting           int64      `json:"waiting"`
	Later             int64      `json:"later"`
	Scheduled         int64      `json:"scheduled"`
	ScheduledCapacity *int64     `json:"scheduled_capacity,omitempty"`
	InFlight          int64      `json:"in_flight"`
	MaxInFlight       int64      `json:"max_in_flight,omitempty"`
	Dead              int64      `json:"dead"`
	DeadBytes         int64      `json:"dead_bytes"`
	DeadCapacity      int64      `json:"dead_capacity,omitempty"`
	DeadCapacityBytes int64      `json:"dead_capacity_bytes,omitempty"`
	DeadDropped       int64      `json:"dead_dropped"` // as their retention had ended, or as there were too many, ever
	RememberedIDs     int64      `json:"remembered_ids"`
	ForgottenIDs      int64      `json:"forgotten_ids"`
	OldestAge         float64    `json:"oldest_age_seconds"`
	Callbacks         *callbacks `json:"callbacks,omitempty"` // that wait; none if none does
	LastSlot          *time.Time `json:"last_slot,omitempty"`

	Flows  *partCounts `json:"flows,omitempty"`  // only of one with flows
	Groups *partCounts `json:"groups,omitempty"` // only of one with groups of them

	Pool      *opsview.Pool `json:"pool,omitempty"`      // only of a bucket in a pool
	Elsewhere bool          `json:"elsewhere,omitempty"` // it lives in another pool than configured here

	Pause     *opsview.Pause     `json:"pause,omitempty"`   // only of one that is paused
	Overrides []opsview.Override `json:"overrides"`         // settings that were changed at run time
	Purged    int64              `json:"purged"`            // jobs that purges have dropped, ever
	Purging   int64              `json:"purging,omitempty"` // moved aside by a purge and not removed yet

	Downstream *opsview.Downstream `json:"downstream,omitempty"` // what the answers to it have changed; none if nothing
}

// callbacks are those of a bucket that wait for the bucket that delivers them.
type callbacks struct {
	Waiting   int64   `json:"waiting"` // they count against the capacity, beside unfinished jobs
	OldestAge float64 `json:"oldest_age_seconds"`
}

// partCounts are the flows or the groups of a bucket in numbers.
type partCounts struct {
	Known   int64  `json:"known"`             // that have jobs, or had some lately
	Waiting *int64 `json:"waiting,omitempty"` // have something to send, now or later; not counted for flows in groups

	Held     int64 `json:"held,omitempty"` // of flows: their downstream holds them; dispatchers count these about every 30 s
	Open     int64 `json:"breaker_open,omitempty"`
	HalfOpen int64 `json:"breaker_half_open,omitempty"`
	Disabled int64 `json:"disabled,omitempty"`
}

func (o *ops) viewOf(info *operator.BucketInfo) *bucketView {
	view := &bucketView{
		Name: info.Name, Orphaned: !slices.Contains(o.buckets.Buckets(), info.Name),
		Unfinished: info.Unfinished, Waiting: info.Waiting, Later: info.Later, Scheduled: info.Scheduled,
		InFlight: info.InFlight, Dead: info.Dead, RememberedIDs: info.Remembered, ForgottenIDs: info.Forgotten,
		OldestAge: info.OldestAge.Seconds(), LastSlot: instant(info.LastSlot),
		Pool: opsview.PoolOf(info.Pool, info.Now), Downstream: opsview.DownstreamOf(info.Downstream, info.Now), Pause: opsview.PauseOf(info.Pause), Overrides: opsview.OverridesOf(info.Overrides), Purged: info.Purged, Purging: info.Purging,
	}
	view.DeadBytes, view.DeadCapacity, view.DeadCapacityBytes = info.DeadBytes, info.DeadCapacity, info.DeadMaxBytes
	view.DeadDropped = info.DeadDroppedOld + info.DeadDroppedExtra
	view.Elsewhere = info.Elsewhere
	switch {
	case info.HasGroups:
		view.Flows, view.Groups = &partCounts{Known: info.Flows}, &partCounts{Known: info.Groups, Waiting: &info.GroupsWait}
	case info.HasFlows:
		view.Flows = &partCounts{Known: info.Flows, Waiting: &info.FlowsWait}
	}
	if f := view.Flows; f != nil {
		f.Held, f.Open, f.HalfOpen, f.Disabled = info.FlowsHeld, info.FlowsOpen, info.FlowsHalfOpen, info.FlowsDisabled
	}
	if info.Callbacks > 0 {
		view.Callbacks = &callbacks{info.Callbacks, info.OldestCallbackAge.Seconds()}
	}
	if info.Configured {
		view.Revision, view.Rate, view.Burst = &info.Revision, info.Rate.String(), info.Burst
		view.Capacity, view.ScheduledCapacity, view.MaxInFlight = info.Capacity, &info.ScheduledCapacity, info.MaxInFlight
	}
	return view
}

// listBuckets answers all buckets of the caller's key: first the configured ones in the order of
// the configuration, then the orphaned ones: GET /v1/buckets.
func (o *ops) listBuckets(w http.ResponseWriter, r *http.Request) {
	names, err := o.names(r.Context())
	if key := keyOf(r); key != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return !key.mayUse(name) })
	}
	var infos []operator.BucketInfo
	if err == nil && len(names) > 0 { // none would mean all
		infos, err = o.buckets.BucketInfos(r.Context(), names...)
	}
	if err != nil {
		o.store.of(r, err).write(w, r)
		return
	}
	views := make([]*bucketView, len(infos))
	for i := range infos {
		views[i] = o.viewOf(&infos[i])
	}
	writeJSON(w, http.StatusOK, map[string]any{"buckets": views})
}

// showBucket answers one bucket: GET /v1/buckets/{bucket}.
func (o *ops) showBucket(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("bucket")
	names, err := o.names(r.Context())
	if err == nil && !slices.Contains(names, name) {
		newFault(codeUnknownBucket, "neither the configuration nor Redis knows a bucket %q", name).write(w, r)
		return
	}
	var infos []operator.BucketInfo
	if err == nil {
		infos, err = o.buckets.BucketInfos(r.Context(), name)
	}
	if err != nil {
		o.store.of(r, err).write(w, r)
		return
	}
	writeJSON(w, http.StatusOK, o.viewOf(&infos[0]))
}

func (o *ops) names(ctx context.Context) ([]string, error) {
	known, err := o.buckets.KnownBuckets(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(o.buckets.Buckets())
	for _, name := range known {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
