package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/tracing"
	"github.com/tundish-io/tundish/shaper/producer"
)

// recorded is a tracer whose spans the test reads.
func recorded() (trace.TracerProvider, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = shaper.MaxBatchSize
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithRawSpanLimits(limits)), recorder
}

// spansNamed are the ended spans of a name, in the order of their ends.
func spansNamed(r *tracetest.SpanRecorder, name string) []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(slices.Clone(r.Ended()), func(s sdktrace.ReadOnlySpan) bool { return s.Name() != name })
}

func attributesOf(span sdktrace.ReadOnlySpan) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range span.Attributes() {
		all[a.Key] = a.Value.String()
	}
	return all
}

// tracedWorld is a bucket whose client has a tracer, with the send span of each job by its id.
func tracedWorld(t *testing.T, provider trace.TracerProvider, b shaper.Bucket) *rig.World {
	t.Helper()
	b.Retry = shaper.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
	w := rig.NewWorld(t, b)
	client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: rig.Connect(t, w.Proxy.Addr()), Buckets: []shaper.Bucket{b}, Tracer: provider}))(t)
	t.Cleanup(client.Close)
	w.Client.Client = client
	return w
}

// Each attempt is a trace of its own, linked to the enqueue, also after a redrive. The worker gets the attempt's context: in its ctx and as
// the traceparent.
func TestAttemptSpans(t *testing.T) {
	t.Parallel()
	for _, sendIsParent := range []bool{false, true} {
		t.Run(fmt.Sprint("send is parent ", sendIsParent), func(t *testing.T) {
			t.Parallel()
			provider, recorder := recorded()
			w := tracedWorld(t, provider, rig.Bucket("b", 1000))
			var mu sync.Mutex
			var carried []string
			succeeds := false
			worker := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
				mu.Lock()
				defer mu.Unlock()
				carried = append(carried, a.Headers["Traceparent"][0])
				must.Equal(t, tracing.Of(a.Headers).SpanID(), trace.SpanContextFromContext(ctx).SpanID(), "the traceparent of the attempt is not that of its context")
				if succeeds {
					w.News()
					return shaper.Done(200)
				}
				return shaper.Retry("http_500", "it said 500")
			})
			registry := prometheus.NewRegistry()
			stop := dispatch(w, worker, func(cfg *Config) {
				cfg.Tracer, cfg.SendIsParent, cfg.Registerer = provider, sendIsParent, registry
			})
			w.Submit("job")
			w.AwaitDead(1)
			mu.Lock()
			succeeds = true
			mu.Unlock()
			must.Get(w.Client.Op.As("anna").Bucket("b").Dead().Redrive(t.Context(), "job"))(t)
			w.Await(1)
			must.OK(t, stop())
			send := spansNamed(recorder, "send b")[0].SpanContext()
			attempts := spansNamed(recorder, "process b")
			must.Be(t, len(attempts), 4, "attempts, want 3 and one after the redrive")
			for i, span := range attempts {
				wantAttempt(t, span, send, sendIsParent)
				if !strings.Contains(carried[i], span.SpanContext().SpanID().String()) {
					t.Errorf("attempt %d carries %s, want span %s", i, carried[i], span.SpanContext().SpanID())
				}
				want, code := map[attribute.Key]string{"tundish.outcome": "retry", "tundish.reason": "http_500", "error.type": "http_500"}, codes.Error
				if i == 3 {
					want, code = map[attribute.Key]string{"tundish.outcome": "done"}, codes.Unset
				}
				want["messaging.message.id"], want["messaging.operation.type"] = "job", "process"
				got := attributesOf(span)
				for key, value := range want {
					must.Equal(t, got[key], value, "attempt %d: %s is", i, key)
				}
				if span.Status().Code != code {
					t.Errorf("attempt %d: status %v", i, span.Status())
				}
			}
			wantExemplar(t, registry, "tundish_departure_lateness_seconds")
			wantExemplar(t, registry, "tundish_delivery_duration_seconds")
		})
	}
}

// wantAttempt wants a root that is linked to the send, or a child of it.
func wantAttempt(t *testing.T, span sdktrace.ReadOnlySpan, send trace.SpanContext, sendIsParent bool) {
	t.Helper()
	must.Equal(t, span.SpanKind(), trace.SpanKindConsumer, "kind")
	if sendIsParent {
		if span.Parent().SpanID() != send.SpanID() || len(span.Links()) > 0 {
			t.Errorf("parent %s, %d links: want the send as parent", span.Parent().SpanID(), len(span.Links()))
		}
		return
	}
	if span.Parent().IsValid() || span.SpanContext().TraceID() == send.TraceID() || len(span.Links()) != 1 || span.Links()[0].SpanContext.SpanID() != send.SpanID() {
		t.Errorf("parent %s, links %v: want a root with a link to the send", span.Parent().SpanID(), span.Links())
	}
}

// wantExemplar wants a trace id in a histogram.
func wantExemplar(t *testing.T, registry *prometheus.Registry, name string) {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, bucket := range family.GetMetric()[0].GetHistogram().GetBucket() {
			if labels := bucket.GetExemplar().GetLabel(); len(labels) == 1 && labels[0].GetName() == "trace_id" && len(labels[0].GetValue()) == 32 {
				return
			}
		}
	}
	t.Errorf("%s has no exemplar", name)
}

// batchRecorder takes batches, and fails every second job.
type batchRecorder struct {
	shaper.WorkerFunc
	got chan []*shaper.Attempt
}

func (b batchRecorder) DeliverBatch(_ context.Context, batch *shaper.Batch) []shaper.Outcome {
	outcomes := make([]shaper.Outcome, len(batch.Attempts))
	for i := range outcomes {
		outcomes[i] = shaper.Done(200)
		if i%2 == 1 {
			outcomes[i] = shaper.Dead("http_410", "it said 410")
		}
	}
	b.got <- batch.Attempts
	return outcomes
}

// A batch is one span with a link for each job, and each item keeps the context of its enqueue. It is so with either relation.
func TestBatchSpans(t *testing.T) {
	t.Parallel()
	const size = 200 // more links than a span has by default
	for _, sendIsParent := range []bool{false, true} {
		provider, recorder := recorded()
		b := rig.Bucket("b", 1000)
		b.Batch = shaper.BatchSettings{MaxSize: size, MaxBytes: shaper.MaxBatchBytes, MaxWait: time.Minute}
		w := tracedWorld(t, provider, b)
		worker := batchRecorder{got: make(chan []*shaper.Attempt, 1)}
		cfg := Config{
			Redis: rig.Connect(t, w.Proxy.Addr()), Buckets: []shaper.Bucket{b}, Workers: map[string]shaper.Worker{"b": worker},
			Tracer: provider, SendIsParent: sendIsParent,
		}
		d := must.Get(New(cfg))(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		jobs := make([]shaper.Job, size)
		for i := range jobs {
			jobs[i] = shaper.Job{Bucket: "b", ID: fmt.Sprint("job-", i), Payload: []byte("{}")}
		}
		must.Get(w.Client.Enqueue(t.Context(), jobs...))(t)
		attempts := <-worker.got
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		sends := map[trace.SpanID]bool{}
		for _, span := range spansNamed(recorder, "send b") {
			sends[span.SpanContext().SpanID()] = true
		}
		spans := spansNamed(recorder, "process b")
		if len(spans) != 1 || len(attempts) != size {
			t.Fatalf("%d spans, %d jobs in the first batch", len(spans), len(attempts))
		}
		for i, link := range spans[0].Links() {
			if !sends[link.SpanContext.SpanID()] || link.SpanContext.SpanID() != tracing.Of(attempts[i].Headers).SpanID() {
				t.Errorf("link %d is to %s, and the item has %s", i, link.SpanContext.SpanID(), attempts[i].Headers)
			}
			delete(sends, link.SpanContext.SpanID())
		}
		got := attributesOf(spans[0])
		if len(sends) > 0 || spans[0].Parent().IsValid() || got["messaging.batch.message_count"] != "200" || got["tundish.outcome"] != "mixed" || got["tundish.failed"] != "100" {
			t.Errorf("%d jobs without a link, attributes %v", len(sends), got)
		}
	}
}

// A job that was enqueued without tracing has an attempt without a link.
func TestAttemptOfAnUntracedJob(t *testing.T) {
	t.Parallel()
	provider, recorder := recorded()
	w := tracedWorld(t, nil, rig.Bucket("b", 1000))
	stop := dispatch(w, shaper.WorkerFunc(w.Note), func(cfg *Config) { cfg.Tracer = provider })
	w.Submit("job")
	w.Await(1)
	must.OK(t, stop())
	spans := spansNamed(recorder, "process b")
	if len(spans) != 1 || spans[0].Parent().IsValid() || len(spans[0].Links()) != 0 {
		t.Errorf("%d spans: want a root without links", len(spans))
	}
}

// A span of the program that runs a dispatcher is not the parent of deliveries.
func TestRunLeavesNoSpanInDeliveries(t *testing.T) {
	t.Parallel()
	provider, recorder := recorded()
	w := tracedWorld(t, nil, rig.Bucket("b", 1000))
	d := must.Get(New(Config{Redis: rig.Connect(t, w.Proxy.Addr()), Buckets: []shaper.Bucket{w.Bucket}, Workers: rig.Workers([]shaper.Bucket{w.Bucket}, shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		if trace.SpanContextFromContext(ctx).IsValid() {
			t.Error("the delivery is in a span of the program")
		}
		return w.Note(ctx, a)
	}))}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ctx, span := provider.Tracer("test").Start(ctx, "program")
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	w.Submit("job")
	w.Await(1)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	span.End()
	must.Equal(t, len(recorder.Ended()), 1, "spans")
}

// A job that a process sends itself has both spans in that process, and its permit has the context of the attempt.
func TestPermitSpans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, recorder := recorded()
		l := newSelfDispatching(t, rig.Bucket("b", 10))
		l.dispatch(l.noWorker(), func(cfg *Config) { cfg.Tracer = provider })
		conn := l.conn()
		client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: []shaper.Bucket{l.bucket}, Tracer: provider}))(t)
		defer client.Close()
		leases := must.Get(NewLeases(LeasesConfig{Redis: conn, Tracer: provider}))(t)
		defer leases.Close()
		permits := NewPermits(client, leases)
		defer permits.Close()
		permit := must.Get(permits.Acquire(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("x"), Headers: map[string][]string{"x-tenant": {"7"}}}))(t)
		span := trace.SpanContextFromContext(permit.Context())
		if got := tracing.Of(permit.Attempt().Headers); got.SpanID() != span.SpanID() || permit.Attempt().Headers["x-tenant"] == nil {
			t.Errorf("headers %v, want those of the job with span %s", permit.Attempt().Headers, span.SpanID())
		}
		permit.Settle(shaper.Done(200))
		sends, attempts := spansNamed(recorder, "send b"), spansNamed(recorder, "process b")
		if len(sends) != 1 || len(attempts) != 1 {
			t.Fatalf("%d sends, %d attempts", len(sends), len(attempts))
		}
		wantAttempt(t, attempts[0], sends[0].SpanContext(), false)
	})
}
