package config

import (
	"reflect"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/asynq"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/webhook"
)

func defaultSettings() settings {
	return settings{
		Redis: Redis{URL: embedded, EmbeddedListen: "127.0.0.1:6399", Functions: true, Timeout: time.Second},
		Producer: Producer{
			Listen: "127.0.0.1:8080", ShutdownTimeout: 10 * time.Second, StoreTimeout: 450 * time.Millisecond,
			ForwardedHeader: httplimit.XForwardedFor, IPv6Prefix: httplimit.DefaultIPv6Prefix,
			RateLimitHeaders: string(httplimit.BothHeaders),
			BodyMemory:       httpapi.DefaultBodyMemory, MaxConnections: httpapi.DefaultMaxConnections,
		},
		Dispatcher: Dispatcher{
			Listen: "127.0.0.1:8081", Lease: 30 * time.Second, ShutdownTimeout: 30 * time.Second,
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
		Burst: b.Burst, Capacity: b.Capacity, ScheduledCapacity: b.ScheduledCapacity,
		DeadCapacity: b.DeadCapacity, DeadBytes: size(b.DeadBytes), DeadRetention: b.DeadRetention, WhenDeadFull: string(b.WhenDeadFull),
		Worker: workerWebhook, DedupeWindow: b.DedupeWindow, DedupeMax: b.DedupeMax, PermitTTL: b.PermitTTL,
		MaxPayload: size(b.MaxPayload), Quotas: b.Quotas, PriorityAging: b.PriorityAging, Weight: b.Weight,
		ResultRetention: b.Results.Retention, ResultsMax: b.Results.Max, ResultsBytes: size(b.Results.Bytes), MaxResult: size(b.Results.MaxBody),
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

func defaultShed() shedSettings { return shedSettings{Low: 70, Normal: 80, High: 90} }

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
	case reflect.TypeFor[shedSettings]():
		return reflect.ValueOf(defaultShed())
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

func defaultHTTP() HTTPSettings {
	return HTTPSettings{Timeout: httpworker.DefaultConfig().Timeout, ProxyTimeout: time.Minute}
}

func defaultAsynq() AsynqSettings {
	d := asynq.DefaultConfig()
	return AsynqSettings{Timeout: d.Timeout, Settle: string(d.Settle)}
}

func defaultSchedule() scheduleSettings {
	return scheduleSettings{
		Timezone: "UTC", CatchUp: string(schedule.CatchUpLast), Overlap: string(schedule.OverlapQueue), Priority: string(shaper.PriorityNormal),
	}
}
