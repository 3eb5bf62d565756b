package config

import (
	"reflect"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/httpbound"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/asynq"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/llm"
	"github.com/tundish-io/tundish/workers/outgoing"
	"github.com/tundish-io/tundish/workers/webhook"
)

func defaultSettings() settings {
	return settings{
		Redis: Redis{URL: embedded, EmbeddedListen: "127.0.0.1:6399", Functions: true, Timeout: time.Second},
		Producer: Producer{
			Listen: "127.0.0.1:8080", ShutdownTimeout: 10 * time.Second, IdleTimeout: httpbound.DefaultIdleTimeout, StoreTimeout: 450 * time.Millisecond,
			ForwardedHeader: httplimit.XForwardedFor, IPv6Prefix: httplimit.DefaultIPv6Prefix,
			RateLimitHeaders: string(httplimit.BothHeaders),
			BodyMemory:       httpbound.DefaultBodyMemory, MaxConnections: httpbound.DefaultConnections,
		},
		Dispatcher: Dispatcher{
			Listen: "127.0.0.1:8081", Lease: 30 * time.Second, ShutdownTimeout: 30 * time.Second, IdleTimeout: httpbound.DefaultIdleTimeout,
		},
		Console: Console{Enabled: true, Payloads: showPayloads},
		Log:     Log{Level: "info", Format: "auto"},
		Tracing: Tracing{Relation: relationLink},
	}
}

func defaultBucket() Bucket {
	return Bucket{
		Bucket: shaper.DefaultBucket(), Worker: workerWebhook, Statuses: workers.DefaultPolicy().Statuses,
		Webhook: WebhookSettings{
			JobURL: true, Timeout: 15 * time.Second, Format: string(webhook.FormatStandard),
			CloudEvents: CloudEventsSettings{Type: webhook.DefaultEventType}, ConnectionMaxAge: outgoing.DefaultConnectionMaxAge,
		},
	}
}

// defaultOf returns the defaults of a table in an array of tables, or of an optional table.
func defaultOf(t reflect.Type) reflect.Value {
	if value, ok := defaults[t]; ok {
		return value
	}
	return reflect.Zero(t)
}

var defaultAuth = HTTPAuth{OAuth2: HTTPOAuth2{Style: string(httpworker.OAuth2Basic)}}

var defaults = byType(
	admission.Limit{}.WithDefaults(), shaper.Pool{Burst: 1, BudgetBurst: shaper.DefaultBudgetBurst}, defaultBucket(),
	shaper.Shed{Low: 70, Normal: 80, High: 90}, shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings(),
	schedule.Drain{Timezone: "UTC", Until: schedule.UntilWindow}, shaper.CalendarLine{Timezone: "UTC"},
	workers.DefaultRule(), shaper.BatchSettings{MaxSize: 100, MaxBytes: shaper.MaxBatchBytes},
	scheduleSettings{
		Timezone: "UTC", CatchUp: string(schedule.CatchUpLast), Overlap: string(schedule.OverlapQueue), Priority: string(shaper.PriorityNormal),
	},
	HTTPSettings{Timeout: httpworker.DefaultConfig().Timeout, ProxyTimeout: time.Minute, ProxyPriority: ProxyFirst, ConnectionMaxAge: outgoing.DefaultConnectionMaxAge, Auth: defaultAuth},
	LLMSettings{
		ExpectedOutput: llm.DefaultExpectedOutput, ExpectedInput: llm.DefaultExpectedInput, CountMaxTokens: true, IncludeUsage: true, Timeout: llm.DefaultTimeout,
		IdleTimeout: llm.DefaultIdleTimeout, ProxyTimeout: time.Minute, ProxyPriority: string(shaper.PriorityHigh), FallbackAfter: 10 * time.Second,
		ConnectionMaxAge: outgoing.DefaultConnectionMaxAge, Auth: defaultAuth,
	},
	AsynqSettings{Timeout: asynq.DefaultConfig().Timeout, Settle: string(asynq.DefaultConfig().Settle)},
)

func byType(values ...any) map[reflect.Type]reflect.Value {
	types := make(map[reflect.Type]reflect.Value, len(values))
	for _, value := range values {
		types[reflect.TypeOf(value)] = reflect.ValueOf(value)
	}
	return types
}
