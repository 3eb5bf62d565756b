package config

import (
	"time"

	"github.com/tundish-io/tundish/admission"
)

// settings has the shape of the file: every key of this version is a field of
// it, and no other list of them exists. Within a struct the tables come last,
// as they must in TOML.
type settings struct {
	Revision   int64            `mapstructure:"revision"`
	Redis      Redis            `mapstructure:"redis"`
	Producer   Producer         `mapstructure:"producer"`
	Dispatcher Dispatcher       `mapstructure:"dispatcher"`
	Log        Log              `mapstructure:"log"`
	Keys       []keySettings    `mapstructure:"keys"`
	Limits     []limitSettings  `mapstructure:"limits"`
	Pools      []poolSettings   `mapstructure:"pools"`
	Buckets    []bucketSettings `mapstructure:"buckets"`
	Hooks      []hookSettings   `mapstructure:"hooks"`

	Schedules []scheduleSettings `mapstructure:"schedules"`
}

type keySettings struct {
	Name    string   `mapstructure:"name"`
	Caller  string   `mapstructure:"caller"`
	SHA256  digests  `mapstructure:"sha256"`
	Roles   []string `mapstructure:"roles"`
	Buckets []string `mapstructure:"buckets"`
	Flows   []string `mapstructure:"flows"`
	Groups  []string `mapstructure:"groups"`
	Tier    string   `mapstructure:"tier"`
}

type limitSettings struct {
	Name           string                    `mapstructure:"name"`
	Algorithm      string                    `mapstructure:"algorithm"`
	Per            []string                  `mapstructure:"per"`
	Limit          admission.Rate            `mapstructure:"limit"`
	Burst          int64                     `mapstructure:"burst"` // 0 where it is not set
	Precision      int64                     `mapstructure:"precision"`
	MaxKeys        int64                     `mapstructure:"max_keys"`
	Mode           string                    `mapstructure:"mode"`
	OnStoreFailure string                    `mapstructure:"on_store_failure"`
	OnMissing      string                    `mapstructure:"on_missing"`
	SyncInterval   time.Duration             `mapstructure:"sync_interval"`
	Tiers          map[string]admission.Rate `mapstructure:"tiers"`
}

type poolSettings struct {
	Name        string           `mapstructure:"name"`
	Rate        admission.Rate   `mapstructure:"rate"`
	Burst       int64            `mapstructure:"burst"`
	Quotas      []admission.Rate `mapstructure:"quotas"`
	MaxInFlight int64            `mapstructure:"max_in_flight"`
}

type bucketSettings struct {
	Name              string            `mapstructure:"name"`
	Rate              admission.Rate    `mapstructure:"rate"`
	Burst             int64             `mapstructure:"burst"`
	Capacity          int64             `mapstructure:"capacity"`
	ScheduledCapacity int64             `mapstructure:"scheduled_capacity"`
	MaxInFlight       int64             `mapstructure:"max_in_flight"`
	DeadCapacity      int64             `mapstructure:"dead_capacity"`
	DeadBytes         size              `mapstructure:"dead_bytes"`
	DeadRetention     time.Duration     `mapstructure:"dead_retention"`
	WhenDeadFull      string            `mapstructure:"when_dead_full"`
	Limits            []string          `mapstructure:"limits"`
	Worker            string            `mapstructure:"worker"`
	DedupeWindow      time.Duration     `mapstructure:"dedupe_window"`
	DedupeMax         int64             `mapstructure:"dedupe_max"`
	PermitTTL         time.Duration     `mapstructure:"permit_ttl"`
	MaxPayload        size              `mapstructure:"max_payload"`
	Quotas            []admission.Rate  `mapstructure:"quotas"`
	PriorityAging     time.Duration     `mapstructure:"priority_aging"`
	ResultRetention   time.Duration     `mapstructure:"result_retention"`
	ResultsMax        int64             `mapstructure:"results_max"`
	ResultsBytes      size              `mapstructure:"results_bytes"`
	MaxResult         size              `mapstructure:"max_result"`
	Pool              string            `mapstructure:"pool"`
	Weight            int64             `mapstructure:"weight"`
	Retry             retrySettings     `mapstructure:"retry"`
	Adapt             adaptSettings     `mapstructure:"adapt"`
	Breaker           breakerSettings   `mapstructure:"breaker"`
	Webhook           WebhookSettings   `mapstructure:"webhook"`
	Shed              *shedSettings     `mapstructure:"shed"`      // nil: jobs of all priorities fill the bucket
	HTTP              *HTTPSettings     `mapstructure:"http"`      // nil: the worker is another one
	Asynq             *AsynqSettings    `mapstructure:"asynq"`     // nil: the worker is another one
	Callbacks         *callbackSettings `mapstructure:"callbacks"` // nil: no outcome is told
	Batch             *batchSettings    `mapstructure:"batch"`     // nil: jobs leave one by one
	Flow              *flowSettings     `mapstructure:"flow"`      // nil: the bucket has no flows
	Group             *groupSettings    `mapstructure:"group"`     // nil: its flows are in no groups
	Drain             *drainSettings    `mapstructure:"drain"`     // nil: it leaks at all times
	Calendar          []lineSettings    `mapstructure:"calendar"`
}

type flowSettings struct {
	Key               string           `mapstructure:"key"`
	Rate              admission.Rate   `mapstructure:"rate"`
	Burst             int64            `mapstructure:"burst"`
	Capacity          int64            `mapstructure:"capacity"`
	MaxInFlight       int64            `mapstructure:"max_in_flight"`
	Quotas            []admission.Rate `mapstructure:"quotas"`
	ScheduledCapacity int64            `mapstructure:"scheduled_capacity"`
	MaxFlows          int64            `mapstructure:"max_flows"`
	MaxPerCaller      int64            `mapstructure:"max_per_caller"`
}

// groupSettings are the settings of flows, without max_flows.
type groupSettings struct {
	Key               string           `mapstructure:"key"`
	Rate              admission.Rate   `mapstructure:"rate"`
	Burst             int64            `mapstructure:"burst"`
	Capacity          int64            `mapstructure:"capacity"`
	MaxInFlight       int64            `mapstructure:"max_in_flight"`
	Quotas            []admission.Rate `mapstructure:"quotas"`
	ScheduledCapacity int64            `mapstructure:"scheduled_capacity"`
}

// shedSettings are percents of the capacity.
type shedSettings struct {
	Low    int64 `mapstructure:"low"`
	Normal int64 `mapstructure:"normal"`
	High   int64 `mapstructure:"high"`
}

type retrySettings struct {
	MaxAttempts int           `mapstructure:"max_attempts"`
	MinBackoff  time.Duration `mapstructure:"min_backoff"`
	MaxBackoff  time.Duration `mapstructure:"max_backoff"`

	Schedule     []time.Duration `mapstructure:"schedule"`
	Statuses     []string        `mapstructure:"statuses"`
	MaxAge       time.Duration   `mapstructure:"max_age"`
	KeepAttempts int             `mapstructure:"keep_attempts"`
}

type adaptSettings struct {
	Scope   string        `mapstructure:"scope"`
	Hold    bool          `mapstructure:"hold"`
	MaxHold time.Duration `mapstructure:"max_hold"`
	Floor   percent       `mapstructure:"floor"`
}

type breakerSettings struct {
	Failures int           `mapstructure:"failures"`
	OpenFor  time.Duration `mapstructure:"open_for"`
	MaxOpen  time.Duration `mapstructure:"max_open"`

	DisableAfter time.Duration `mapstructure:"disable_after"`
	OnGone       string        `mapstructure:"on_gone"`
}

// The kinds of workers.
const (
	workerWebhook = "webhook"
	workerHTTP    = "http"
	workerAsynq   = "asynq"
)

// workerKinds lists them.
func workerKinds() []string { return []string{workerWebhook, workerHTTP, workerAsynq} }
