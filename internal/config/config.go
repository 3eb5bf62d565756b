package config

import (
	"net/netip"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
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
	Log        Log
	Keys       []httpapi.Key
	Limits     []admission.Limit
	Pools      []shaper.Pool
	Buckets    []Bucket
	Hooks      []Hook

	// File is the file that was read, "" if there was none.
	File string

	effective []printed
}

// Redis says where the jobs are kept.
type Redis struct {
	URL              RedisURL      `mapstructure:"url"`
	EmbeddedListen   string        `mapstructure:"embedded_listen"`
	Password         Secret        `mapstructure:"password"` // over the URL's, if not empty
	SentinelPassword Secret        `mapstructure:"sentinel_password"`
	TLSCA            string        `mapstructure:"tls_ca"` // PEM files
	TLSCert          string        `mapstructure:"tls_cert"`
	TLSKey           string        `mapstructure:"tls_key"`
	TLSServerName    string        `mapstructure:"tls_server_name"`
	Functions        bool          `mapstructure:"functions"` // scripts run as functions of Redis, else by EVALSHA
	PoolSize         int           `mapstructure:"pool_size"` // 0 lets the client choose
	Timeout          time.Duration `mapstructure:"timeout"`
}

// Producer is the program that takes jobs in.
type Producer struct {
	Listen           string        `mapstructure:"listen"`
	ShutdownTimeout  time.Duration `mapstructure:"shutdown_timeout"`
	StoreTimeout     time.Duration `mapstructure:"store_timeout"`      // how long a request waits for Redis
	TrustedProxies   Networks      `mapstructure:"trusted_proxies"`    // proxies whose header names the client's address
	ForwardedHeader  string        `mapstructure:"forwarded_header"`   // where they put it: x-forwarded-for, forwarded
	IPv6Prefix       int           `mapstructure:"ipv6_prefix"`        // bits of an IPv6 address that are one client
	RateLimitHeaders string        `mapstructure:"rate_limit_headers"` // headers that tell clients of limits: both, standard, legacy
	BodyMemory       size          `mapstructure:"body_memory"`        // bytes of the bodies of all requests together
	MaxConnections   int           `mapstructure:"max_connections"`    // at a time
	OperatorAPI      bool          `mapstructure:"operator_api"`       // served too
}

// Networks are networks and, as networks of one, addresses.
type Networks []netip.Prefix

// Dispatcher is the program that lets jobs out.
type Dispatcher struct {
	Listen          string        `mapstructure:"listen"`
	Concurrency     int           `mapstructure:"concurrency"` // workers per bucket in this process; 0: see Workers
	Lease           time.Duration `mapstructure:"lease"`
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// automaticConcurrency bounds the workers of a bucket where the configuration does not: the memory of the process, at some 20 KB each.
const automaticConcurrency = 10_000

// Workers is how many workers a bucket has in this process at most. Unset, it leaves the bound to max_in_flight of each bucket.
func (d Dispatcher) Workers() int {
	if d.Concurrency == 0 {
		return automaticConcurrency
	}
	return d.Concurrency
}

// Log selects the log's level and format.
type Log struct {
	Level  string `mapstructure:"level"`  // debug, info, warn, error
	Format string `mapstructure:"format"` // auto, text, json
}

// Bucket is a bucket and the settings of its worker.
type Bucket struct {
	shaper.Bucket

	Worker   string   // the kind that delivers: "webhook", "http" or "asynq"
	Statuses []string // the answers after which a job is tried again, see workers.Policy

	BatchFormat workers.BatchFormat // how a request carries the jobs of a batch
	Webhook     WebhookSettings
	HTTP        *HTTPSettings  // of the worker http, else nil
	Asynq       *AsynqSettings // of the worker asynq, else nil
}

// WebhookSettings are the settings of a bucket whose worker is "webhook".
type WebhookSettings struct {
	URL           SecretURL           `mapstructure:"url"`     // where a job names none
	JobURL        bool                `mapstructure:"job_url"` // whether a job may name its own
	Timeout       time.Duration       `mapstructure:"timeout"` // of one attempt
	AllowNetworks []netip.Prefix      `mapstructure:"allow_networks"`
	Secrets       []Secret            `mapstructure:"secrets"` // that sign, the newest first
	Format        string              `mapstructure:"format"`  // standard, cloudevents, cloudevents-structured
	EgressProxy   Secret              `mapstructure:"egress_proxy"`
	CloudEvents   CloudEventsSettings `mapstructure:"cloudevents"`
	TLS           WebhookTLS          `mapstructure:"tls"`
}

// CloudEventsSettings are attributes of events, for the formats that make them.
type CloudEventsSettings struct {
	Source string `mapstructure:"source"`
	Type   string `mapstructure:"type"` // of jobs that name none
}

// WebhookTLS are names of PEM files.
type WebhookTLS struct {
	CA   string `mapstructure:"ca"`
	Cert string `mapstructure:"cert"`
	Key  string `mapstructure:"key"`
}

// Worker returns the settings as the worker has them, for a number of deliveries at a time. The policy is still to be set.
// It reveals the secrets.
func (w WebhookSettings) Worker(concurrency int) webhook.Config {
	c := webhook.Config{
		URL: w.URL.Reveal(), JobURL: w.JobURL, Timeout: w.Timeout, AllowNetworks: w.AllowNetworks, Concurrency: concurrency,
		Format: webhook.Format(w.Format), CloudEvents: webhook.CloudEvents(w.CloudEvents), TLS: outgoing.TLS(w.TLS),
		EgressProxy: w.EgressProxy.Reveal(),
	}
	for _, secret := range w.Secrets {
		c.Secrets = append(c.Secrets, secret.Reveal())
	}
	return c
}
