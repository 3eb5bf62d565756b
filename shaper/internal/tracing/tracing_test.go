package tracing_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/tracing"
	"github.com/tundish-io/tundish/workers/outgoing"
)

const (
	own   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	spans = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
)

func contextOf(t *testing.T, parent, state string) trace.SpanContext {
	t.Helper()
	headers := map[string][]string{"traceparent": {parent}}
	if state != "" {
		headers["tracestate"] = []string{state}
	}
	return tracing.Of(headers)
}

// The headers of a job may be spelled in any way, and may be invalid.
func TestOf(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		headers map[string][]string
		valid   bool
		state   string
	}{
		"none":           {nil, false, ""},
		"no values":      {map[string][]string{"traceparent": {}}, false, ""},
		"invalid":        {map[string][]string{"traceparent": {"of the job"}}, false, ""},
		"valid":          {map[string][]string{"TRACEPARENT": {own}}, true, ""},
		"with state":     {map[string][]string{"Traceparent": {own}, "traceState": {"a=1", "b=2"}}, true, "a=1,b=2"},
		"state alone":    {map[string][]string{"tracestate": {"a=1"}}, false, ""},
		"other headers":  {map[string][]string{"x-traceparent": {own}}, false, ""},
		"broken state":   {map[string][]string{"traceparent": {own}, "tracestate": {"="}}, true, ""},
		"of no trace id": {map[string][]string{"traceparent": {"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01"}}, false, ""},
	} {
		got := tracing.Of(test.headers)
		if got.IsValid() != test.valid || got.TraceState().String() != test.state {
			t.Errorf("%s: %v, state %q", name, got.IsValid(), got.TraceState())
		}
	}
}

// The context takes the place of that of the job, and the caller's map stays as it is.
func TestWith(t *testing.T) {
	t.Parallel()
	of := contextOf(t, spans, "")
	for name, test := range map[string]struct{ before, after map[string][]string }{
		"none":    {nil, map[string][]string{"Traceparent": {spans}}},
		"others":  {map[string][]string{"x-tenant": {"7"}}, map[string][]string{"x-tenant": {"7"}, "Traceparent": {spans}}},
		"its own": {map[string][]string{"TRACEPARENT": {own}, "tracestate": {"a=1"}}, map[string][]string{"Traceparent": {spans}}},
	} {
		before := map[string][]string{}
		for key, values := range test.before {
			before[key] = values
		}
		must.Equal(t, cmp.Diff(test.after, tracing.With(test.before, of)), "", "%s", name)
		if diff := cmp.Diff(before, test.before); len(before) > 0 && diff != "" {
			t.Errorf("%s: the map has changed: %s", name, diff)
		}
	}
	if got := tracing.With(nil, trace.SpanContext{}); got != nil {
		t.Errorf("an invalid context made the headers %v", got)
	}
	if got := tracing.With(nil, contextOf(t, spans, "a=1"))["Tracestate"]; !cmp.Equal(got, []string{"a=1"}) {
		t.Errorf("tracestate %v", got)
	}
}

// A job with as many headers as are allowed is still delivered: it gets no Trace Context beyond that.
func TestWithHeedsTheBoundsOfADelivery(t *testing.T) {
	t.Parallel()
	full := func(lines int) map[string][]string {
		return map[string][]string{"x": make([]string, lines)}
	}
	long := func(size int) map[string][]string {
		return map[string][]string{"x": {strings.Repeat("a", size-1)}}
	}
	need := len("Traceparent") + len(spans)
	for name, test := range map[string]struct {
		headers       map[string][]string
		parent, state bool
	}{
		"room for both":           {full(shaper.MaxHeaders - 2), true, true},
		"room for the parent":     {full(shaper.MaxHeaders - 1), true, false},
		"room for none":           {full(shaper.MaxHeaders), false, false},
		"bytes for the parent":    {long(shaper.MaxHeaderBytes - need), true, false},
		"one byte too few for it": {long(shaper.MaxHeaderBytes - need + 1), false, false},
		"in place of another":     {map[string][]string{"x": make([]string, shaper.MaxHeaders-1), "traceparent": {own}}, true, false},
	} {
		got := tracing.With(test.headers, contextOf(t, spans, "a=1"))
		if hasParent, hasState := got["Traceparent"] != nil, got["Tracestate"] != nil; hasParent != test.parent || hasState != test.state {
			t.Errorf("%s: parent %t, state %t", name, hasParent, hasState)
		}
		if err := outgoing.CheckHeaders(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
