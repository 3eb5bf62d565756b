package config

import (
	"reflect"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/webhook"
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
	Shed              shedSettings      `mapstructure:"shed"`
	Retry             retrySettings     `mapstructure:"retry"`
	Adapt             adaptSettings     `mapstructure:"adapt"`
	Breaker           breakerSettings   `mapstructure:"breaker"`
	Webhook           WebhookSettings   `mapstructure:"webhook"`
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
	Key         string           `mapstructure:"key"`
	Rate        admission.Rate   `mapstructure:"rate"`
	Burst       int64            `mapstructure:"burst"`
	Capacity    int64            `mapstructure:"capacity"`
	MaxInFlight int64            `mapstructure:"max_in_flight"`
	Quotas      []admission.Rate `mapstructure:"quotas"`
	MaxFlows    int64            `mapstructure:"max_flows"`
}

// groupSettings are the settings of flows, without max_flows.
type groupSettings struct {
	Key         string           `mapstructure:"key"`
	Rate        admission.Rate   `mapstructure:"rate"`
	Burst       int64            `mapstructure:"burst"`
	Capacity    int64            `mapstructure:"capacity"`
	MaxInFlight int64            `mapstructure:"max_in_flight"`
	Quotas      []admission.Rate `mapstructure:"quotas"`
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

func defaultSettings() settings {
	return settings{
		Redis: Redis{URL: embedded, EmbeddedListen: "127.0.0.1:6399", Timeout: time.Second},
		Producer: Producer{
			Listen: "127.0.0.1:8080", ShutdownTimeout: 10 * time.Second, StoreTimeout: 450 * time.Millisecond,
			ForwardedHeader: httplimit.XForwardedFor, IPv6Prefix: httplimit.DefaultIPv6Prefix,
			RateLimitHeaders: string(httplimit.BothHeaders),
			BodyMemory:       httpapi.DefaultBodyMemory, MaxConnections: httpapi.DefaultMaxConnections,
		},
		Dispatcher: Dispatcher{
			Listen: "127.0.0.1:8081", Concurrency: 256, Lease: 30 * time.Second, ShutdownTimeout: 30 * time.Second,
		},
		Log: Log{Level: "info", Format: "auto"},
	}
}

func defaultLimit() limitSettings {
	return limitSettings{
		Algorithm: string(admission.TokenBucket), Precision: 1, MaxKeys: admission.DefaultMaxKeys,
		Mode: string(admission.Enforce), OnStoreFailure: string(admission.Closed), OnMissing: string(admission.Refuse),
	}
}

func defaultPool() poolSettings { return poolSettings{Burst: 1} }

func defaultBucket() bucketSettings {
	b := shaper.DefaultBucket()
	return bucketSettings{
		Burst: b.Burst, Capacity: b.Capacity, ScheduledCapacity: b.ScheduledCapacity, MaxInFlight: b.MaxInFlight,
		DeadCapacity: b.DeadCapacity, DeadBytes: size(b.DeadBytes), DeadRetention: b.DeadRetention, WhenDeadFull: string(b.WhenDeadFull),
		Worker: workerWebhook, DedupeWindow: b.DedupeWindow, DedupeMax: b.DedupeMax, PermitTTL: b.PermitTTL,
		MaxPayload: size(b.MaxPayload), Quotas: b.Quotas, PriorityAging: b.PriorityAging, Weight: b.Weight,
		ResultRetention: b.Results.Retention, ResultsMax: b.Results.Max, ResultsBytes: size(b.Results.Bytes), MaxResult: size(b.Results.MaxBody),
		Shed: shedSettings(b.Shed),
		Retry: retrySettings{
			MaxAttempts: b.Retry.MaxAttempts, MinBackoff: b.Retry.MinBackoff, MaxBackoff: b.Retry.MaxBackoff, Schedule: b.Retry.Schedule,
			Statuses: workers.DefaultPolicy().Statuses, MaxAge: b.Retry.MaxAge, KeepAttempts: b.Retry.KeepAttempts,
		},
		Adapt: adaptSettings{Scope: string(b.Adapt.Scope), Hold: b.Adapt.Hold, MaxHold: b.Adapt.MaxHold, Floor: percent(b.Adapt.Floor)},
		Breaker: breakerSettings{
			Failures: b.Breaker.Failures, OpenFor: b.Breaker.OpenFor, MaxOpen: b.Breaker.MaxOpen, DisableAfter: b.Breaker.DisableAfter, OnGone: string(b.Breaker.OnGone),
		},
		Webhook: WebhookSettings{
			JobURL: true, Timeout: 15 * time.Second, Format: string(webhook.FormatStandard),
			CloudEvents: CloudEventsSettings{Type: webhook.DefaultEventType},
		},
	}
}

func defaultFlow() flowSettings {
	f := shaper.DefaultFlowSettings()
	return flowSettings{Burst: f.Burst, MaxFlows: f.MaxFlows}
}

func defaultGroup() groupSettings { return groupSettings{Burst: shaper.DefaultGroupSettings().Burst} }

// defaultElement returns the defaults of a table in an array of tables, or of an optional
// table.
func defaultElement(t reflect.Type) reflect.Value {
	switch t {
	case reflect.TypeFor[limitSettings]():
		return reflect.ValueOf(defaultLimit())
	case reflect.TypeFor[poolSettings]():
		return reflect.ValueOf(defaultPool())
	case reflect.TypeFor[bucketSettings]():
		return reflect.ValueOf(defaultBucket())
	case reflect.TypeFor[flowSettings]():
		return reflect.ValueOf(defaultFlow())
	case reflect.TypeFor[groupSettings]():
		return reflect.ValueOf(defaultGroup())
	case reflect.TypeFor[drainSettings]():
		return reflect.ValueOf(defaultDrain())
	case reflect.TypeFor[lineSettings]():
		return reflect.ValueOf(defaultLine())
	case reflect.TypeFor[scheduleSettings]():
		return reflect.ValueOf(defaultSchedule())
	case reflect.TypeFor[HTTPSettings]():
		return reflect.ValueOf(defaultHTTP())
	case reflect.TypeFor[batchSettings]():
		return reflect.ValueOf(defaultBatch())
	case reflect.TypeFor[AsynqSettings]():
		return reflect.ValueOf(defaultAsynq())
	}
	return reflect.Zero(t)
}

func (s keySettings) key() httpapi.Key {
	key := httpapi.Key{Name: s.Name, Buckets: s.Buckets, Tier: s.Tier}
	key.Flows, key.Groups = append(key.Flows, s.Flows...), append(key.Groups, s.Groups...) // nil for []
	for _, sum := range s.SHA256 {
		key.SHA256 = append(key.SHA256, sum.sum())
	}
	for _, role := range s.Roles {
		key.Roles = append(key.Roles, httpapi.Role(role))
	}
	return key
}

func (s limitSettings) limit() admission.Limit {
	return admission.Limit{
		Name: s.Name, Algorithm: admission.Algorithm(s.Algorithm), Per: s.Per, Limit: s.Limit, Burst: s.Burst,
		Precision: s.Precision, MaxKeys: s.MaxKeys, Tiers: s.Tiers, Mode: admission.Mode(s.Mode),
		OnStoreFailure: admission.OnStoreFailure(s.OnStoreFailure), OnMissing: admission.OnMissing(s.OnMissing),
		SyncInterval: s.SyncInterval,
	}.WithDefaults()
}

func (s poolSettings) pool(revision int64) shaper.Pool {
	return shaper.Pool{Name: s.Name, Rate: s.Rate, Burst: s.Burst, Quotas: s.Quotas, MaxInFlight: s.MaxInFlight, Revision: revision}
}

// policy returns the policy, with max_attempts as it is in s.
func (s retrySettings) policy() shaper.RetryPolicy {
	p := shaper.RetryPolicy{
		MinBackoff: s.MinBackoff, MaxBackoff: s.MaxBackoff, MaxAge: s.MaxAge, KeepAttempts: s.KeepAttempts,
	}.WithSchedule(s.Schedule...)
	p.MaxAttempts = s.MaxAttempts
	return p
}

// bucket returns the bucket with its pool and the limits that it names.
func (s bucketSettings) bucket(limits []admission.Limit, pools []shaper.Pool, revision int64) Bucket {
	b := Bucket{Worker: s.Worker, Webhook: s.Webhook, HTTP: s.HTTP, Asynq: s.Asynq, Statuses: s.Retry.Statuses, BatchFormat: s.batchFormat(), Bucket: shaper.Bucket{
		Name: s.Name, Rate: s.Rate, Burst: s.Burst,
		Capacity: s.Capacity, ScheduledCapacity: s.ScheduledCapacity, MaxInFlight: s.MaxInFlight,
		DedupeWindow: s.DedupeWindow, DedupeMax: s.DedupeMax, PermitTTL: s.PermitTTL, MaxPayload: int64(s.MaxPayload),
		Quotas: s.Quotas, PriorityAging: s.PriorityAging, Shed: shaper.Shed(s.Shed), Retry: s.Retry.policy(),
		Adapt: shaper.Adapt{Scope: shaper.Scope(s.Adapt.Scope), Hold: s.Adapt.Hold, MaxHold: s.Adapt.MaxHold, Floor: int(s.Adapt.Floor)},
		Breaker: shaper.Breaker{
			Failures: s.Breaker.Failures, OpenFor: s.Breaker.OpenFor, MaxOpen: s.Breaker.MaxOpen, DisableAfter: s.Breaker.DisableAfter, OnGone: shaper.OnGone(s.Breaker.OnGone),
		},
		Weight: s.Weight, Revision: revision, Callbacks: s.callbacks(), Batch: s.batch(),
		Results: shaper.ResultSettings{
			Retention: s.ResultRetention, Max: s.ResultsMax, Bytes: int64(s.ResultsBytes), MaxBody: int64(s.MaxResult),
		},
		DeadCapacity: s.DeadCapacity, DeadBytes: int64(s.DeadBytes), DeadRetention: s.DeadRetention, WhenDeadFull: shaper.WhenDeadFull(s.WhenDeadFull),
		Drain: s.Drain.drain(), Calendar: calendarOf(s.Calendar),
	}}
	if f := s.Flow; f != nil {
		b.Flow = &shaper.FlowSettings{
			Key: f.Key, DefaultURL: s.defaultURL(), Rate: f.Rate, Burst: f.Burst, Capacity: f.Capacity, MaxInFlight: f.MaxInFlight,
			Quotas: f.Quotas, MaxFlows: f.MaxFlows,
		}
	}
	if g := s.Group; g != nil {
		b.Group = &shaper.GroupSettings{
			Key: g.Key, DefaultURL: s.defaultURL(), Rate: g.Rate, Burst: g.Burst, Capacity: g.Capacity, MaxInFlight: g.MaxInFlight,
			Quotas: g.Quotas,
		}
	}
	if i := slices.IndexFunc(pools, func(p shaper.Pool) bool { return p.Name == s.Pool }); i >= 0 {
		b.Pool = &pools[i]
	}
	for _, name := range s.Limits {
		for _, limit := range limits {
			if limit.Name == name {
				b.Limits = append(b.Limits, limit)
			}
		}
	}
	return b
}
