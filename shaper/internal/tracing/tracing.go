// Package tracing has the parts of spans that producers and dispatchers share: the attributes, and the Trace Context in the headers of a job.
package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/shaper"
)

// Operations, as the semantic conventions for messaging name them. Each is the first word of a span's name.
const (
	Send    = "send"
	Process = "process"
)

// Attributes that the semantic conventions have no name for.
const (
	Flow      = attribute.Key("tundish.flow")
	Group     = attribute.Key("tundish.group")
	Attempt   = attribute.Key("tundish.attempt")   // the number of the attempt at the job, from 1
	Outcome   = attribute.Key("tundish.outcome")   // of an attempt, a result of package shaper; "mixed" of a batch whose jobs ended differently
	Reason    = attribute.Key("tundish.reason")    // one word, of an attempt
	Failed    = attribute.Key("tundish.failed")    // of a batch: its jobs whose outcome is an error
	Refusal   = attribute.Key("tundish.refusal")   // why a job was refused
	Duplicate = attribute.Key("tundish.duplicate") // the job was in the bucket already
)

// Attributes of the semantic conventions for messaging.
const (
	MessageID  = attribute.Key("messaging.message.id")
	BatchCount = attribute.Key("messaging.batch.message_count")
	ErrorType  = attribute.Key("error.type")
)

// Tracer returns a tracer of a provider, nil of no provider.
func Tracer(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		return nil
	}
	return provider.Tracer("github.com/tundish-io/tundish/shaper")
}

// Attributes returns the attributes of each span of a bucket, with room for more.
func Attributes(operation, bucket string) []attribute.KeyValue {
	const most = 12
	return append(make([]attribute.KeyValue, 0, most),
		attribute.String("messaging.system", "tundish"),
		attribute.String("messaging.destination.name", bucket),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", operation),
	)
}

// Place adds the flow and the group of a job, as far as it has them.
func Place(attributes []attribute.KeyValue, flow, group string) []attribute.KeyValue {
	if flow != "" {
		attributes = append(attributes, Flow.String(flow))
	}
	if group != "" {
		attributes = append(attributes, Group.String(group))
	}
	return attributes
}

// Of returns the Trace Context in the headers of a job. It is not valid where the headers have none, or an invalid one.
func Of(headers map[string][]string) trace.SpanContext {
	var c carrier
	for name, values := range headers {
		switch {
		case len(values) == 0:
		case strings.EqualFold(name, shaper.HeaderTraceParent):
			c.parent = values[0]
		case strings.EqualFold(name, shaper.HeaderTraceState):
			c.state = strings.Join(values, ",")
		}
	}
	if c.parent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), &c))
}

// With returns the headers of a job with this Trace Context in place of their own: see [shaper.WithTraceContext]. A context that is not valid
// changes nothing.
func With(headers map[string][]string, of trace.SpanContext) map[string][]string {
	if !of.IsValid() {
		return headers
	}
	var c carrier
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), of), &c)
	return shaper.WithTraceContext(headers, c.parent, c.state)
}

// carrier holds the two headers for the propagator.
type carrier struct{ parent, state string }

// Get implements [propagation.TextMapCarrier].
func (c *carrier) Get(key string) string {
	switch key {
	case "traceparent":
		return c.parent
	case "tracestate":
		return c.state
	}
	return ""
}

// Set implements [propagation.TextMapCarrier].
func (c *carrier) Set(key, value string) {
	switch key {
	case "traceparent":
		c.parent = value
	case "tracestate":
		c.state = value
	}
}

// Keys implements [propagation.TextMapCarrier].
func (c *carrier) Keys() []string { return []string{"traceparent", "tracestate"} }
