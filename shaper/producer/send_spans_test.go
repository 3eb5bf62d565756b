package producer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// tracedClient is a client whose spans are recorded.
func tracedClient(t *testing.T, conn redis.UniversalClient, b shaper.Bucket) (*producer.Client, *tracetest.SpanRecorder, *sdktrace.TracerProvider) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	return clientWith(t, conn, b, provider), recorder, provider
}

func clientWith(t *testing.T, conn redis.UniversalClient, b shaper.Bucket, provider trace.TracerProvider) *producer.Client {
	t.Helper()
	c := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{b}, Tracer: provider}))(t)
	t.Cleanup(c.Close)
	return c
}

func attributesOf(span sdktrace.ReadOnlySpan) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range span.Attributes() {
		all[a.Key] = a.Value.String()
	}
	return all
}

// Each job of a call has a span of its own, and carries its context. The caller's jobs stay as they are.
func TestSendSpans(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	client, recorder, provider := tracedClient(t, conn, rig.Bucket("b", 10))
	ctx, outer := provider.Tracer("test").Start(t.Context(), "request")
	headers := map[string][]string{"x-tenant": {"7"}}
	jobs := []shaper.Job{
		{Bucket: "b", ID: "first", Payload: []byte("x"), Headers: headers},
		{Bucket: "b", ID: "second", Payload: []byte("x"), Headers: map[string][]string{"traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}},
	}
	must.Get(client.Enqueue(ctx, jobs...))(t)
	if len(headers) != 1 || jobs[1].Headers["traceparent"] == nil {
		t.Errorf("the caller's headers have changed: %v, %v", headers, jobs[1].Headers)
	}
	spans := recorder.Ended()
	must.Be(t, len(spans), 2, "spans, want one for each job")
	parents := []string{outer.SpanContext().TraceID().String(), "4bf92f3577b34da6a3ce929d0e0e4736"}
	for i, span := range spans {
		if span.Name() != "send b" || span.SpanKind() != trace.SpanKindProducer || span.SpanContext().TraceID().String() != parents[i] {
			t.Errorf("span %q, kind %s, of trace %s: want trace %s", span.Name(), span.SpanKind(), span.SpanContext().TraceID(), parents[i])
		}
		got := attributesOf(span)
		for key, want := range map[attribute.Key]string{
			"messaging.system": "tundish", "messaging.destination.name": "b", "messaging.operation.type": "send", "messaging.operation.name": "send",
			"messaging.message.id": jobs[i].ID,
		} {
			must.Equal(t, got[key], want, "%s: %s is", jobs[i].ID, key)
		}
		job := must.Get(client.Job(t.Context(), "b", jobs[i].ID))(t)
		if want := span.SpanContext().SpanID().String(); len(job.Headers["Traceparent"]) != 1 || !strings.Contains(job.Headers["Traceparent"][0], want) {
			t.Errorf("%s carries %v, want span %s", jobs[i].ID, job.Headers, want)
		}
	}
}

// A job that is sent again is the same job, though its span is another one; with tracing on, off, and on again.
func TestASpanIsNoContent(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client()
	traced, recorder, _ := tracedClient(t, conn, rig.Bucket("b", 10))
	job := shaper.Job{Bucket: "b", ID: "once", Payload: []byte("x"), Headers: map[string][]string{"x-tenant": {"7"}}}
	for i, client := range []*producer.Client{traced, traced, clientWith(t, conn, rig.Bucket("b", 10), nil), traced} {
		receipts, err := client.Enqueue(t.Context(), job)
		if err != nil || receipts[0].Refusal != nil || receipts[0].Duplicate != (i > 0) {
			t.Errorf("call %d: %+v, %v", i, receipts, err)
		}
	}
	if spans := recorder.Ended(); len(spans) != 3 || attributesOf(spans[1])["tundish.duplicate"] != "true" {
		t.Errorf("%d spans", len(spans))
	}
	job.Payload = []byte("y")
	receipts, err := traced.Enqueue(t.Context(), job)
	if err != nil || receipts[0].Refusal == nil || receipts[0].Refusal.Reason != shaper.ReasonIDReused {
		t.Errorf("another payload: %+v, %v", receipts, err)
	}
}

// A refusal is no error of the span. A job that cannot be sent is one, and so is a Redis that does not answer.
func TestSendSpansThatFail(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 10)
	b.Capacity = 1
	client, recorder, _ := tracedClient(t, redistest.Start(t).Client(), b)
	last := func() sdktrace.ReadOnlySpan { return recorder.Ended()[len(recorder.Ended())-1] }
	for range 2 {
		must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("x")}))(t)
	}
	if span := last(); span.Status().Code != codes.Unset || attributesOf(span)["tundish.refusal"] != string(shaper.ReasonBucketFull) {
		t.Errorf("refused: status %v, attributes %v", span.Status(), attributesOf(span))
	}
	if _, err := client.Enqueue(t.Context(), shaper.Job{Bucket: "other"}); !errors.Is(err, shaper.ErrUnknownBucket) {
		t.Fatal(err)
	}
	if span := last(); span.Status().Code != codes.Error {
		t.Errorf("unknown bucket: status %v", span.Status())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client.Enqueue(ended, shaper.Job{Bucket: "b", Payload: []byte("x")})
	if span := last(); (span.Status().Code == codes.Error) != (err != nil) { // the answer may be there first
		t.Errorf("the caller has gone: %v, status %v", err, span.Status())
	}
}

// A provider that makes no spans leaves the Trace Context of the job as it is.
func TestSendWithoutSpans(t *testing.T) {
	t.Parallel()
	const own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	client := clientWith(t, redistest.Start(t).Client(), rig.Bucket("b", 10), noop.NewTracerProvider())
	for id, headers := range map[string]map[string][]string{"none": nil, "own": {"traceparent": {own}}} {
		must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: id, Payload: []byte("x"), Headers: headers}))(t)
		job, err := client.Job(t.Context(), "b", id)
		if err != nil || len(job.Headers) != len(headers) {
			t.Errorf("%s: headers %v, %v", id, job.Headers, err)
		}
	}
}
