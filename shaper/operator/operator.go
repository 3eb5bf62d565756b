// Package operator reads buckets, flows, groups, pools, jobs and dead letters, and changes them while programs run. Every process obeys a change from
// its next script on.
package operator

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Config configures an [Operator].
type Config struct {
	Redis   redis.UniversalClient // made by redisconn.Connect
	Buckets []shaper.Bucket       // of the configuration
	Timeout time.Duration         // of one call; 0 means DefaultTimeout
	Logger  *slog.Logger          // every change is logged; nil logs nothing

	// Registerer is where the metrics go; nil counts nothing. Actors of one process may share it.
	Registerer prometheus.Registerer

	// CheckFlow, if not nil, returns the faults that the bucket's kind of worker finds in an operator's settings for deliveries of a flow. Each fault
	// is a [*shaper.FieldError]; they are joined, and contain no credential. [FlowControl.Set] calls it. A worker checks again: other processes may
	// write settings without a check.
	CheckFlow func(bucket string, own *shaper.OwnDelivery) error

	// CheckJob, if not nil, returns the faults that the bucket's kind of worker finds in a job, in the same form. [ScheduleControl.Set] calls it for
	// the job of a schedule.
	CheckJob func(bucket string, job *shaper.Job) error
}

// Operator reads buckets, flows, groups, pools, jobs and dead letters, and changes them. It works on every bucket that Redis knows, also if the
// configuration does not have it. It is safe for concurrent use. When Redis is down or too slow, a method returns an error after Config.Timeout for
// each of its round trips, or at the deadline of ctx.
type Operator struct {
	store     *store.Store
	checkFlow func(bucket string, own *shaper.OwnDelivery) error
	checkJob  func(bucket string, job *shaper.Job) error
}

// New checks the buckets and returns an operator. It does not talk to Redis yet.
func New(cfg Config) (*Operator, error) {
	s, err := store.New(store.Guest, cfg.Redis, cfg.Buckets, cfg.Timeout, cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, err
	}
	s.Quiet, s.UsesAll = true, true
	return &Operator{store: s, checkFlow: cfg.CheckFlow, checkJob: cfg.CheckJob}, nil
}

// Fleet returns a view of the processes of this Redis, and of their counters.
func (o *Operator) Fleet() *fleet.View { return fleet.NewView(o.store.Redis, o.store.Timeout) }

// Audit returns the log of operations and their authors. The methods of this package write none: the API and the command line do, for each operation.
func (o *Operator) Audit() *audit.Log { return audit.NewLog(o.store.Redis, o.store.Timeout) }

// Buckets returns the names of all configured buckets, in the order of the configuration.
func (o *Operator) Buckets() []string { return o.store.Names() }

// Reconfigure replaces the configured buckets, as a producer's Client does.
func (o *Operator) Reconfigure(buckets []shaper.Bucket) error { return o.store.Reconfigure(buckets) }

// Ping checks that Redis responds: in a cluster, that any master does. One round trip.
func (o *Operator) Ping(ctx context.Context) error { return o.store.Ping(ctx) }

// Probe finds out what is wrong with Redis: [redisconn.FailureOf] names it. It pings, and runs a script that writes. Two round trips.
func (o *Operator) Probe(ctx context.Context) error { return o.store.Probe(ctx) }
