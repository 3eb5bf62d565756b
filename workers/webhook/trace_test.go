package webhook

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/shaper"
)

// A delivery in a span has one of the request, which the receiver sees as its parent. It shows no path: that of a webhook may be a secret.
func TestRequestSpan(t *testing.T) {
	t.Parallel()
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	w := newWorker(t, nil)
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	const own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for method, result := range map[string]shaper.Result{http.MethodPost: shaper.ResultDone, http.MethodPut: shaper.ResultRetry} {
		ctx, span := provider.Tracer("test").Start(t.Context(), "process b")
		attempt := newAttempt(server.URL + "/secret-path?token=secret")
		attempt.Method, attempt.Headers = method, map[string][]string{"traceparent": {own}}
		if outcome := w.Deliver(ctx, attempt); outcome.Result != result {
			t.Errorf("%s: %+v", method, outcome)
		}
		spans := recorder.Ended()
		request := spans[len(spans)-1]
		if request.Name() != method || request.SpanKind() != trace.SpanKindClient || request.Parent().SpanID() != span.SpanContext().SpanID() {
			t.Errorf("span %q, kind %s, parent %s", request.Name(), request.SpanKind(), request.Parent().SpanID())
		}
		if want := "00-" + request.SpanContext().TraceID().String() + "-" + request.SpanContext().SpanID().String() + "-01"; len(got["Traceparent"]) != 1 || got.Get("Traceparent") != want {
			t.Errorf("the receiver got %v, want %s", got["Traceparent"], want)
		}
		for _, a := range request.Attributes() {
			if strings.Contains(a.Value.String(), "secret") {
				t.Errorf("%s is %s", a.Key, a.Value.String())
			}
			if a.Key == "url.full" && a.Value.AsString() != server.URL {
				t.Errorf("url.full is %s, want the origin", a.Value.AsString())
			}
		}
		if isError := request.Status().Code == codes.Error; isError != (result == shaper.ResultRetry) {
			t.Errorf("%s: status %v", method, request.Status())
		}
		span.End()
	}
	attempt := newAttempt(server.URL)
	attempt.Headers = map[string][]string{"traceparent": {own}}
	want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
	if got.Get("Traceparent") != own || len(recorder.Ended()) != 4 {
		t.Errorf("without a span the receiver got %v, and there are %d spans", got["Traceparent"], len(recorder.Ended()))
	}
}

// A trace that is not sampled makes no span, and the receiver still gets a context of the attempt's trace.
func TestRequestOfATraceThatIsNotSampled(t *testing.T) {
	t.Parallel()
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Traceparent") }))
	defer server.Close()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.NeverSample()))
	ctx, span := provider.Tracer("test").Start(t.Context(), "process b")
	want(t, newWorker(t, nil).Deliver(ctx, newAttempt(server.URL)), shaper.ResultDone, "")
	if !strings.HasPrefix(got, "00-"+span.SpanContext().TraceID().String()) || !strings.HasSuffix(got, "-00") || len(recorder.Ended()) > 0 {
		t.Errorf("the receiver got %q of trace %s; %d spans", got, span.SpanContext().TraceID(), len(recorder.Ended()))
	}
}
