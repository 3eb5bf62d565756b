package shaper

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// OperatorConfig is what an [Operator] needs.
type OperatorConfig struct {
	Redis   redis.UniversalClient // made by redisconn.Connect
	Buckets []Bucket              // of the configuration
	Timeout time.Duration         // of one call; 0 means DefaultTimeout
	Logger  *slog.Logger          // every change is logged; nil logs nothing

	// Registerer is where the metrics go; nil counts nothing. Actors of one process may share it.
	Registerer prometheus.Registerer

	// CheckFlow, if not nil, reports what the bucket's kind of worker finds wrong with what
	// an operator gives a flow for its deliveries: each fault a [*FieldError], joined, that
	// repeats no credential. [Control.SetFlow] asks it. A worker has to ask again, as
	// whoever sets them elsewhere may ask nobody.
	CheckFlow func(bucket string, own *OwnDelivery) error
}

// Operator looks at buckets, flows, groups, pools, jobs and dead letters, and changes them. It works on
// every bucket that Redis knows, also on one that the configuration does not have. It is safe for
// concurrent use. When Redis is down or too slow, a method returns an error after OperatorConfig.Timeout
// for each of its round trips, or at the deadline of ctx.
type Operator struct {
	store     *store
	checkFlow func(bucket string, own *OwnDelivery) error
}

// NewOperator checks the buckets and returns an operator. It does not talk to Redis yet.
func NewOperator(cfg OperatorConfig) (*Operator, error) {
	s, err := newStore(cfg.Redis, cfg.Buckets, cfg.Timeout, cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Operator{store: s, checkFlow: cfg.CheckFlow}, nil
}

// Buckets returns the names of all configured buckets, in the order of the configuration.
func (o *Operator) Buckets() []string { return o.store.order }

// Settings returns the configured settings of a bucket, or [ErrUnknownBucket].
func (o *Operator) Settings(bucket string) (Bucket, error) {
	b, err := o.store.bucket(bucket)
	if err != nil {
		return Bucket{}, err
	}
	return *b.settings.Load(), nil
}

// Reconfigure replaces the settings of configured buckets, as [Client.Reconfigure] does.
func (o *Operator) Reconfigure(buckets []Bucket) error { return o.store.reconfigure(buckets) }

// Ping asks Redis for a sign of life: of a cluster, one of any master. One round trip.
func (o *Operator) Ping(ctx context.Context) error { return o.store.ping(ctx) }

// Job returns what is known of a job, as [Client.Job] does.
func (o *Operator) Job(ctx context.Context, bucket, id string) (JobInfo, error) {
	return o.store.job(ctx, bucket, id)
}

// DropDead drops a dead letter and returns the state the job is in now:
// [StateDropped] if that worked, now or before. One round trip.
func (o *Operator) DropDead(ctx context.Context, bucket, id string) (State, error) {
	return o.store.cancel(ctx, bucket, id, StateDead)
}

// Cancel cancels a job that waits, as [Client.Cancel] does.
func (o *Operator) Cancel(ctx context.Context, bucket, id string) (State, error) {
	return o.store.cancel(ctx, bucket, id, "")
}
