package httpapi

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/session"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	client "github.com/tundish-io/tundish/shaper/producer"
)

// Jobs are the methods of [*producer.Client] that the producer's API calls.
type Jobs interface {
	Prober
	Bucket(name string) (shaper.Bucket, error)
	CurrentName(bucket string) string
	Enqueue(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error)
	Job(ctx context.Context, bucket, id string) (shaper.JobInfo, error)
	Cancel(ctx context.Context, bucket, id string) (shaper.State, error)
	Await(ctx context.Context, job shaper.Job) (shaper.Receipt, *client.Awaited, error)
	Result(ctx context.Context, bucket, id string) (shaper.JobResult, error)
	LimitHeaders(bucket string) []string
	OpenBundle(ctx context.Context, bucket string, bundle shaper.Bundle) (shaper.BundleInfo, error)
	Bundle(ctx context.Context, bucket, id string) (shaper.BundleInfo, error)
}

// ProducerConfig configures the producer's API.
type ProducerConfig struct {
	Jobs Jobs

	// CheckJob reports the faults that the bucket's kind of worker finds in a
	// job: joined errors, each a [*shaper.FieldError]. nil checks nothing.
	CheckJob func(bucket string, job *shaper.Job) error

	// CheckCallbacks reports the same of the URLs that a bundle names for its callback. nil checks nothing.
	CheckCallbacks func(bucket string, job *shaper.Job) error

	// Estimate returns the budget units that a valid job reserves. It is called in buckets with budgets. nil leaves the reservation to the job.
	Estimate func(bucket string, job *shaper.Job) shaper.Units

	// Proxy returns how the shaping proxy serves a bucket, and whether it does. nil serves none.
	Proxy func(bucket string) (ProxySettings, bool)

	// HostFault reports whether no dispatcher of a bucket can connect to its API because of faults of their hosts. It is called if a client of the proxy
	// waited in vain. nil means no.
	HostFault func(ctx context.Context, bucket string) bool

	// LLMRoutes are those to the APIs of language models. nil serves none.
	LLMRoutes LLMRoutes

	// Limits are the limits of /v1/limits, which checks use. BucketLimits are the same limits as the buckets count them. nil means that there are none.
	Limits       Limits
	BucketLimits BucketLimits

	// ServesAlone reports whether this process can serve something while Redis fails: a limit that is open or local then. nil means no.
	ServesAlone func() bool

	// Operator, if not nil, serves the routes of the operator's API too. Pools are the configured pools, for these routes.
	Operator Buckets
	Pools    []shaper.Pool

	// Audit records changes of limits; nil records none. The operator's API has its own.
	Audit *audit.Log

	// Keys are the API keys. Without any, only programs of this machine are
	// served.
	Keys []apikey.Key

	// WrongKeys, Forbidden and Sessions are as of [OpsConfig].
	WrongKeys prometheus.Counter
	Forbidden *prometheus.CounterVec
	Sessions  *session.Store

	// TrustedProxies are the proxies that are trusted to report their client's address, and ForwardedHeader is the header in which they report it.
	// IPv6Prefix is the length of the prefix that counts as one address, 1 to 128; 0 means 64. See [httplimit.Proxies].
	TrustedProxies  []netip.Prefix
	ForwardedHeader string
	IPv6Prefix      int

	// RateLimitHeaders selects the headers that report limits to a client; "" means both.
	RateLimitHeaders httplimit.RateLimitHeaders

	// MaxConnections is the highest number of concurrent requests. Half of them may wait for a result. A caller's share is what it leaves free for the
	// others. 0 means DefaultMaxConnections. Idle connections are closed to make room for new ones.
	MaxConnections int

	// IdleTimeout is how long a connection without a request is kept; 0 means httpbound.DefaultIdleTimeout.
	IdleTimeout time.Duration

	// BodyMemory bounds the memory of the bodies of all requests, and of responses above 4 KiB, in bytes; above it the response is 503. 0 means
	// DefaultBodyMemory.
	BodyMemory int64

	Metrics prometheus.Gatherer // the metrics of /metrics; nil has none

	// Exemplars adds trace ids to /metrics, for a scraper that requests OpenMetrics. All others get the text format.
	Exemplars bool
	Logger    *slog.Logger // nil logs nothing
}

// producer serves the routes that enqueue jobs.
type producer struct {
	jobs      Jobs
	checkJob  func(bucket string, job *shaper.Job) error
	callbacks func(bucket string, job *shaper.Job) error // checks their URLs
	estimate  func(bucket string, job *shaper.Job) shaper.Units
	store     *storeFaults
	log       *slog.Logger
	access    *access
	limits    Limits
	overrides BucketLimits
	headers   httplimit.RateLimitHeaders
	draining  *draining
	proxies   func(bucket string) (ProxySettings, bool)
	hostFault func(ctx context.Context, bucket string) bool
	llmRoutes LLMRoutes
}
