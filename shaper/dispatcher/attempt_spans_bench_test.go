package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// BenchmarkAttempt is what the span adds to one attempt: none, one by a provider that does nothing, and one that is recorded and dropped. The worker does nothing.
func BenchmarkAttempt(b *testing.B) {
	for name, provider := range map[string]trace.TracerProvider{"off": nil, "noop": noop.NewTracerProvider(), "recording": sdktrace.NewTracerProvider()} {
		b.Run(name, func(b *testing.B) {
			bucket := rig.Bucket("b", 1000)
			s := must.Get(store.New(store.Authoritative, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), []shaper.Bucket{bucket}, 0, nil, prometheus.NewRegistry()))(b)
			conn := newBucketConn(s.Known("b"), s, time.Minute, context.Background(), &outage{log: s.Log})
			v := newDeliverer(newSettler(newLeaseHolder(conn, nil), nil, nil), shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }), 1)
			v.spans = newAttemptTracer(provider, false)
			const own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			b.ReportAllocs()
			for b.Loop() {
				job := &leased{Attempt: shaper.Attempt{Bucket: "b", ID: "job", Headers: map[string][]string{"Traceparent": {own}}}, slot: time.Now(), permitTTL: time.Second}
				job.depart = func(time.Duration) { job.departed = time.Now() }
				v.attempt(context.Background(), request{job})
			}
		})
	}
}
