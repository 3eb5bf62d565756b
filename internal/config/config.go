package config

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
	"github.com/tundish-io/tundish/workers/webhook"
)

// Config is a valid configuration. It is not changed after [Load]; to reload,
// load another one.
type Config struct {
	// Revision orders configurations: a process whose revision is lower than
	// the stored one in Redis obeys the stored configuration and changes nothing.
	Revision int64

	Redis      Redis
	Producer   Producer
	Dispatcher Dispatcher
	Console    Console
	Log        Log
	Tracing    Tracing
	Keys       []apikey.Key
	Limits     []admission.Limit
	Pools      []shaper.Pool
	Buckets    []Bucket
	Hooks      []Hook

	// File is the file that was read, "" if there was none.
	File string

	// Functions, because package fmt would show the secrets in fields that are not exported.
	printed func() []printed // all settings, in the order of the shipped file
	written func(place) bool // reports whether the file or a variable sets a key
}

// Redis are the settings of the Redis that stores the jobs.
type Redis struct {
	URL              RedisURL      `setting:"url"`
	EmbeddedListen   string        `setting:"embedded_listen"`
	Password         Secret        `setting:"password"` // over the URL's, if not empty
	SentinelPassword Secret        `setting:"sentinel_password"`
	TLSCA            string        `setting:"tls_ca"` // PEM files
	TLSCert          string        `setting:"tls_cert"`
	TLSKey           string        `setting:"tls_key"`
	TLSServerName    string        `setting:"tls_server_name"`
	Functions        bool          `setting:"functions"` // scripts run as functions of Redis, otherwise by EVALSHA
	PoolSize         int           `setting:"pool_size"` // 0 lets the client choose
	Timeout          time.Duration `setting:"timeout"`

	Files RedisFiles `setting:"-"`
}

// Address returns the address for other programs: for the embedded store, the address of the running dispatcher. It reveals a password of the URL.
func (r Redis) Address() string {
	if r.URL.Embedded() {
		return "redis://" + r.EmbeddedListen
	}
	return r.URL.Reveal()
}

// Options returns the options of a connection. They reveal the passwords. A nil log logs nothing.
func (r Redis) Options(log *slog.Logger) redisconn.Options {
	options := redisconn.Options{Timeout: r.commandTimeout(), PoolSize: r.PoolSize, NoFunctions: !r.Functions, Logger: log}
	if !r.URL.Embedded() { // the embedded store has no password
		options.Password, options.SentinelPassword = r.Password.Reveal(), r.SentinelPassword.Reveal()
		options.Credentials, options.SentinelCredentials = r.credentials(), r.sentinelCredentials()
		options.TLS = redisconn.TLSOptions{CA: r.TLSCA, Cert: r.TLSCert, Key: r.TLSKey, ServerName: r.TLSServerName}
	}
	return options
}

// CallTimeout bounds a call to Redis with its resends. Each command of a call has the timeout of commandTimeout.
func (c *Config) CallTimeout() time.Duration { return c.Redis.commandTimeout() * 3 / 2 }

// commandTimeout returns the configured timeout. The embedded store gets a longer one: it shares the CPUs of the program, and cannot be away.
func (r *Redis) commandTimeout() time.Duration {
	const ofEmbedded = 5 * time.Second
	if r.URL.Embedded() {
		return max(r.Timeout, ofEmbedded)
	}
	return r.Timeout
}

// Producer holds the settings of the program that enqueues jobs.
type Producer struct {
	Listen           string        `setting:"listen"`
	ShutdownTimeout  time.Duration `setting:"shutdown_timeout"`
	IdleTimeout      time.Duration `setting:"idle_timeout"`       // how long a connection without a request is kept
	StoreTimeout     time.Duration `setting:"store_timeout"`      // how long a request waits for Redis
	TrustedProxies   Networks      `setting:"trusted_proxies"`    // proxies whose header names the client's address
	ForwardedHeader  string        `setting:"forwarded_header"`   // the header with the client address: x-forwarded-for, forwarded
	IPv6Prefix       int           `setting:"ipv6_prefix"`        // bits of an IPv6 address that are one client
	RateLimitHeaders string        `setting:"rate_limit_headers"` // headers that report limits to clients: both, standard, legacy
	BodyMemory       int64         `setting:"body_memory,bytes"`  // bytes of the bodies of all requests together
	MaxConnections   int           `setting:"max_connections"`    // at a time
	OperatorAPI      bool          `setting:"operator_api"`       // served too
}

// Networks are networks and, as networks of one, addresses.
type Networks []netip.Prefix

// Dispatcher holds the settings of the program that dispatches jobs.
type Dispatcher struct {
	Listen          string        `setting:"listen"`
	Concurrency     int           `setting:"concurrency"` // workers per bucket in this process; 0: see Workers
	Lease           time.Duration `setting:"lease"`
	ShutdownTimeout time.Duration `setting:"shutdown_timeout"`
	IdleTimeout     time.Duration `setting:"idle_timeout"` // of its API, as of the producer
}

// automaticConcurrency bounds the workers of a bucket if the configuration does not: by the memory of the process, at some 20 KB each.
const automaticConcurrency = 10_000

// Workers returns the highest number of workers of a bucket in this process. Without the setting, max_in_flight of each bucket is the bound.
func (d Dispatcher) Workers() int {
	if d.Concurrency == 0 {
		return automaticConcurrency
	}
	return d.Concurrency
}

// Log selects the log's level and format.
type Log struct {
	Level  string `setting:"level"`  // debug, info, warn, error
	Format string `setting:"format"` // auto, text, json
}

// Tracing selects how the spans of a job are linked. The variables OTEL_* switch tracing on.
type Tracing struct {
	Relation string `setting:"relation"` // of an attempt to the enqueue: link, parent
}

// The relations of an attempt to the enqueue of its job.
const (
	relationLink   = "link"
	relationParent = "parent"
)

// SendIsParent reports whether the spans of attempts are children of the span of the enqueue.
func (t Tracing) SendIsParent() bool { return t.Relation == relationParent }

// Bucket is a bucket and the settings of its worker.
type Bucket struct {
	shaper.Bucket `setting:",squash"`

	LimitNames []string `setting:"limits"`
	PoolName   string   `setting:"pool"`
	Worker     string   `setting:"worker"` // the kind that delivers: "webhook", "http", "llm", "asynq" or "program"

	Statuses    []string            `setting:"retry.statuses"` // the statuses after which a job is retried, see workers.Policy
	BatchFormat workers.BatchFormat `setting:"batch.format"`   // how a request carries the jobs of a batch
	Responses   workers.Rules       `setting:"responses"`      // how to judge the responses of the downstream, before all else

	Webhook    WebhookSettings   `setting:"webhook"`
	HTTP       *HTTPSettings     `setting:"http"`  // of the worker http, otherwise nil
	LLM        *LLMSettings      `setting:"llm"`   // of the worker llm, otherwise nil
	Asynq      *AsynqSettings    `setting:"asynq"` // of the worker asynq, otherwise nil
	CallbackTo *callbackSettings `setting:"callbacks"`
}

// Policy returns the policy for the bucket's responses.
func (b *Bucket) Policy() workers.Policy {
	return workers.Policy{Rules: b.Responses, Statuses: b.Statuses, Hold: b.Adapt.Hold, HoldAtZero: b.Adapt.Hold && b.Adapt.HoldAtZero}
}

// ByProgram reports whether a program of the user's works the bucket, so that `dispatcher run` does not.
func (b *Bucket) ByProgram() bool { return b.Worker == workerProgram }

// WebhookSettings are the settings of a bucket whose worker is "webhook".
type WebhookSettings struct {
	URL           SecretURL      `setting:"url"`     // the target of jobs that name none
	JobURL        bool           `setting:"job_url"` // whether a job may name its own
	Timeout       time.Duration  `setting:"timeout"` // of one attempt
	AllowNetworks []netip.Prefix `setting:"allow_networks"`
	Secrets       []Secret       `setting:"secrets"` // that sign, the newest first
	Format        string         `setting:"format"`  // standard, cloudevents, cloudevents-structured
	EgressProxy   Secret         `setting:"egress_proxy"`

	ConnectionMaxAge time.Duration `setting:"connection_max_age"` // 0: no maximum

	CloudEvents CloudEventsSettings `setting:"cloudevents"`
	TLS         WebhookTLS          `setting:"tls"`

	FlowURLs bool `setting:"-"` // see webhook.Config: flow.must_exist without a URL
}

// CloudEventsSettings are attributes of events, for the formats that produce them.
type CloudEventsSettings struct {
	Source string `setting:"source"`
	Type   string `setting:"type"` // of jobs that name none
}

// WebhookTLS are names of PEM files.
type WebhookTLS struct {
	CA   string `setting:"ca"`
	Cert string `setting:"cert"`
	Key  string `setting:"key"`
}

// Worker returns the settings as the worker has them, for a number of deliveries at a time. The policy is still to be set.
// It reveals the secrets.
func (w WebhookSettings) Worker(concurrency int) webhook.Config {
	c := webhook.Config{
		URL: w.URL.Reveal(), FlowURLs: w.FlowURLs, JobURL: w.JobURL, Timeout: w.Timeout, AllowNetworks: w.AllowNetworks, Concurrency: concurrency,
		Format: webhook.Format(w.Format), CloudEvents: webhook.CloudEvents(w.CloudEvents), TLS: outgoing.TLS(w.TLS),
		EgressProxy: w.EgressProxy.Reveal(), ConnectionMaxAge: w.ConnectionMaxAge,
	}
	for _, secret := range w.Secrets {
		c.Secrets = append(c.Secrets, secret.Reveal())
	}
	return c
}
