package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/session"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Buckets are the methods of [*operator.Operator] that the operator's API calls.
type Buckets interface {
	Prober
	Buckets() []string
	KnownBuckets(ctx context.Context) ([]string, error)
	BucketInfos(ctx context.Context, names ...string) ([]operator.BucketInfo, error)
	Verdicts(ctx context.Context, infos []operator.BucketInfo) ([]operator.Verdict, error)
	Authorships(ctx context.Context, withChanges bool, names ...string) map[string]shaper.Authorship
	Pools() []string
	KnownPools(ctx context.Context) ([]string, error)
	PoolDetails(ctx context.Context, names ...string) ([]operator.PoolDetails, error)
	As(author string) *operator.Operator
	Bucket(name string) operator.Bucket
	CurrentName(bucket string) string
	Schedules(ctx context.Context) ([]shaper.ScheduleInfo, error)
	Schedule(name string) operator.Schedule
	Fleet() *fleet.View
	Audit() *audit.Log
	HaveJob(ctx context.Context, id string, buckets ...string) ([]string, error)
}

// OpsConfig configures the operator's API.
type OpsConfig struct {
	Buckets Buckets
	Keys    []apikey.Key        // the API keys; without any, only programs of this machine are served
	Metrics prometheus.Gatherer // the metrics of /metrics; nil has none

	// Exemplars adds trace ids to /metrics, for a scraper that requests OpenMetrics. All others get the text format.
	Exemplars bool
	Logger    *slog.Logger // nil logs nothing

	// Pools are the pools of the configuration, also those that no bucket names.
	Pools []shaper.Pool

	// CheckCallbacks, Limits and BucketLimits are as of [ProducerConfig].
	CheckCallbacks func(bucket string, job *shaper.Job) error
	Limits         Limits
	BucketLimits   BucketLimits

	IdleTimeout time.Duration // as of [ProducerConfig]

	// WrongKeys counts requests with an unknown key; nil counts none. Sessions are the logins of the console.
	WrongKeys prometheus.Counter
	Forbidden *prometheus.CounterVec
	Sessions  *session.Store

	// Pages, if not nil, are served in addition to the API.
	Pages *Pages

	// Sink adds POST /sink, a receiver for trying things out: it logs what arrives.
	Sink bool
}

// ops serves the routes that show and control buckets.
type ops struct {
	buckets Buckets
	pools   atomic.Pointer[[]shaper.Pool]     // of the configuration
	callers atomic.Pointer[map[string]string] // of the configuration, by their marks
	store   *storeFaults
	pulse   *pulse // of Redis; nil without buckets
	author  string // of changes that show no key
	local   bool   // its only client is this process
	lists   *lists
	limits  limitOps
	records *audit.Log

	access   *access
	sessions *session.Store
	keys     apikey.Ring // of the configuration, if access needs none

	callbacks func(bucket string, job *shaper.Job) error // checks their URLs; nil: nothing

	draining *draining
	watcher  func() *fleet.Watcher // of all streams
	streams  *shares               // open ones
}

// byPrograms is the author of changes that show no key: the guard admits no others.
const byPrograms = "a program on the %s's machine"

func newOps(buckets Buckets, pools []shaper.Pool, keys []apikey.Key, author string, draining *draining, log *slog.Logger) *ops {
	o := &ops{buckets: buckets, store: newStoreFaults(log), author: author, lists: newLists(), draining: draining, streams: newShares(maxStreams)}
	o.watcher = sync.OnceValue(func() *fleet.Watcher {
		return fleet.NewWatcher(buckets.Fleet(), func(err error) {
			o.store.sometimes.Do(func() { log.Warn("the counts of the fleet could not be read", "error", err) })
		})
	})
	if buckets != nil {
		o.records, o.pulse = buckets.Audit(), newPulse(buckets)
	}
	o.pools.Store(&pools)
	o.callers.Store(callersOf(keys))
	return o
}

// bucketViews returns the views of the named buckets, none without names.
func (o *ops) bucketViews(ctx context.Context, names ...string) ([]*opsview.Bucket, error) {
	if len(names) == 0 { // which would mean all
		return []*opsview.Bucket{}, nil
	}
	infos, err := o.buckets.BucketInfos(ctx, names...)
	if err != nil {
		return nil, err
	}
	verdicts, err := o.buckets.Verdicts(ctx, infos)
	if err != nil {
		return nil, err
	}
	pools, err := o.poolsOf(ctx, infos)
	if err != nil {
		return nil, err
	}
	authors := o.buckets.Authorships(ctx, len(names) == 1, names...)
	views := make([]*opsview.Bucket, len(infos))
	for i, info := range infos {
		var pool *operator.PoolDetails
		if info.Pool != nil {
			pool = pools[info.Pool.Name]
		}
		views[i] = opsview.BucketOf(info, &verdicts[i], o.configured(info.Name), len(o.buckets.Buckets()) > 0, pool, authors[info.Name])
	}
	return views, nil
}

// configured returns a bucket of the configuration, nil if it has none with this name.
func (o *ops) configured(name string) *shaper.Bucket {
	b, err := o.buckets.Bucket(name).Settings()
	if err != nil {
		return nil
	}
	return &b
}

// poolsOf reads the pools of buckets.
func (o *ops) poolsOf(ctx context.Context, infos []operator.BucketInfo) (map[string]*operator.PoolDetails, error) {
	var names []string
	for _, info := range infos {
		if info.Pool != nil && !slices.Contains(names, info.Pool.Name) {
			names = append(names, info.Pool.Name)
		}
	}
	if len(names) == 0 { // which would mean all
		return nil, nil
	}
	all, err := o.buckets.PoolDetails(ctx, names...)
	if err != nil {
		return nil, err
	}
	pools := map[string]*operator.PoolDetails{}
	for i := range all {
		pools[all[i].Name] = &all[i]
	}
	return pools, nil
}

func (o *ops) showBucket(r *http.Request, in *BucketName) (*opsview.Bucket, error) {
	return o.bucketAfter(r, in.Bucket, opsview.Outcome{})
}

// bucketAfter returns a bucket with the result of its change.
func (o *ops) bucketAfter(r *http.Request, name string, outcome opsview.Outcome) (*opsview.Bucket, error) {
	if err := o.knows(r.Context(), name); err != nil {
		return nil, err
	}
	views, err := o.bucketViews(r.Context(), name)
	if err != nil {
		return nil, err
	}
	views[0].Outcome = outcome
	return views[0], nil
}

// knows returns [shaper.ErrUnknownBucket] for a bucket that is neither in the configuration nor in Redis.
func (o *ops) knows(ctx context.Context, name string) error {
	names, err := o.names(ctx)
	if err == nil && !slices.Contains(names, name) {
		err = shaper.ErrUnknownBucket
	}
	return err
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
