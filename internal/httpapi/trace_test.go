package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

const (
	trace      = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	otherTrace = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00"
)

// headersOf returns the headers with which a job of the roomy bucket will be delivered.
func headersOf(t *testing.T, store *redistest.Server, id string) map[string][]string {
	t.Helper()
	job := must.Get(newOperator(t, connect(t, store.URL()), nil, buckets(t)).Bucket("roomy").Job(id).Info(t.Context()))(t)
	return job.Headers
}

// The Trace Context of the request goes with its jobs, unless a job names one of its own.
func TestTraceContext(t *testing.T) {
	t.Parallel()
	api, store := producerAPI(t)
	const state = "acme=1,other=2"
	api.do("POST", jobs, job(`"id":"plain"`), "Traceparent", trace, "Tracestate", state).want(202, "")
	api.do("POST", jobs, job(`"id":"headed","headers":{"x-tenant":"7"}`), "traceparent", trace).want(202, "")
	api.do("POST", jobs, job(`"id":"parent","headers":{"TRACEPARENT":"of the job"}`), "traceparent", trace, "tracestate", state).want(202, "")
	api.do("POST", jobs, job(`"id":"state","headers":{"traceState":"a=b"}`), "traceparent", trace).want(202, "")
	api.do("POST", jobs, job(`"id":"none"`), "tracestate", state).want(202, "")
	api.do("POST", jobs+"/batch", "["+job(`"id":"one"`)+","+job(`"id":"two","headers":{"traceparent":"its own"}`)+"]", "traceparent", trace).want(200, "")
	for id, want := range map[string]map[string][]string{
		"plain":  {"Traceparent": {trace}, "Tracestate": {state}},
		"headed": {"Traceparent": {trace}, "x-tenant": {"7"}},
		"parent": {"TRACEPARENT": {"of the job"}},
		"state":  {"traceState": {"a=b"}},
		"none":   nil,
		"one":    {"Traceparent": {trace}},
		"two":    {"traceparent": {"its own"}},
	} {
		if got := headersOf(t, store, id); !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: headers %v, want %v", id, got, want)
		}
	}
}

// A job that is sent again comes with another trace and is the same job. Another content is still another job.
func TestTraceIsNotContent(t *testing.T) {
	t.Parallel()
	api, store := producerAPI(t)
	same := job(`"id":"once","headers":{"x-tenant":"7"}`)
	api.do("POST", jobs, same, "traceparent", trace).want(202, "").lacks("duplicate")
	api.do("POST", jobs, same, "traceparent", otherTrace, "tracestate", "a=b").want(202, "").has("duplicate", true)
	api.do("POST", jobs, same).want(202, "").has("duplicate", true)
	api.do("POST", jobs, job(`"id":"once"`), "traceparent", trace).want(422, "id-reused")
	if got := headersOf(t, store, "once")["Traceparent"]; !slices.Equal(got, []string{trace}) {
		t.Errorf("the job has the trace %v, want that of the request that let it in", got)
	}
	a := api.do("POST", jobs+"/batch", "["+same+","+same+"]", "traceparent", otherTrace).want(200, "")
	must.Equal(t, a.statuses(), "202 202", "statuses: %s", a.text)
}

// A job keeps its bounds: a header that would not fit is left out, and the job is let in.
func TestTraceWithoutRoom(t *testing.T) {
	t.Parallel()
	api, store := producerAPI(t)
	many := func(n int) string {
		return `"headers":{"x":[` + strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") + `]}`
	}
	long := fmt.Sprintf(`"headers":{"x":"%s"}`, strings.Repeat("a", shaper.MaxHeaderBytes-1-len("Traceparent")-len(trace)))
	for id, tt := range map[string]struct {
		fields        string
		parent, state bool
	}{
		"two":  {many(shaper.MaxHeaders - 2), true, true},
		"one":  {many(shaper.MaxHeaders - 1), true, false},
		"none": {many(shaper.MaxHeaders), false, false},
		"long": {long, true, false},
	} {
		api.do("POST", jobs, job(`"id":"`+id+`",`+tt.fields), "traceparent", trace, "tracestate", "a=b").want(202, "")
		headers := headersOf(t, store, id)
		must.Equal(t, headers["Traceparent"] != nil, tt.parent, "%s: traceparent", id)
		must.Equal(t, headers["Tracestate"] != nil, tt.state, "%s: tracestate", id)
	}
}

// A header that Trace Context does not allow is ignored as a whole.
func TestTraceContextOf(t *testing.T) {
	t.Parallel()
	const valid = trace
	for parent, ok := range map[string]bool{
		valid: true,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00":      true,
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":      true,
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what": true,
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what": false,
		valid + "-what":  false,
		valid + "-":      false,
		"ff" + valid[2:]: false,
		"":               false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7":    false,
		"00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01":  false,
		" " + valid: false,
		"cc" + valid[2:] + "-" + strings.Repeat("a", 256): false,
		"cc" + valid[2:] + "-\u00e9":                      false,
	} {
		gotParent, gotState := httpapi.TraceContextOf(http.Header{"Traceparent": {parent}, "Tracestate": {"a=b"}})
		if ok && (gotParent != parent || gotState != "a=b") || !ok && gotParent+gotState != "" {
			t.Errorf("%q: %q, %q", parent, gotParent, gotState)
		}
	}
	if got, _ := httpapi.TraceContextOf(http.Header{"Traceparent": {valid, valid}}); got != "" {
		t.Error("two of them are none")
	}
	for _, tt := range []struct {
		lines []string
		want  string
	}{
		{nil, ""},
		{[]string{"a=b"}, "a=b"},
		{[]string{"a=b", "c=d"}, "a=b,c=d"},
		{[]string{"a=b , ,c@d/e*f_g-h=!~ x"}, "a=b , ,c@d/e*f_g-h=!~ x"},
		{[]string{"a=b,a=c"}, ""},
		{[]string{"a"}, ""},
		{[]string{"a="}, ""},
		{[]string{"A=b"}, ""},
		{[]string{"a=b=c"}, ""},
		{[]string{"a=\u00e9"}, ""},
		{[]string{"a=" + strings.Repeat("b", 257)}, ""},
		{[]string{strings.Repeat("a", 257) + "=b"}, ""},
		{[]string{"a=" + strings.Repeat("b", 256), "b=" + strings.Repeat("b", 251)}, "a=" + strings.Repeat("b", 256) + ",b=" + strings.Repeat("b", 251)},
		{[]string{"a=" + strings.Repeat("b", 256), "b=" + strings.Repeat("b", 252)}, ""},
		{[]string{strings.Repeat(",", 31)}, strings.Repeat(",", 31)},
		{[]string{strings.Repeat(",", 32)}, ""},
	} {
		if parent, got := httpapi.TraceContextOf(http.Header{"Traceparent": {valid}, "Tracestate": tt.lines}); parent != valid || got != tt.want {
			t.Errorf("%q: %q, want %q", tt.lines, got, tt.want)
		}
	}
}
