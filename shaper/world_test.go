package shaper

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// takeLease is what the sweeper does when a lease has run out.
func takeLease(w *world, id string) {
	w.t.Helper()
	d, err := NewDispatcher(DispatcherConfig{
		Redis: w.server.Client(), Buckets: []Bucket{w.bucket}, Workers: map[string]Worker{"test": WorkerFunc(w.note)},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r := newDrain(d, d.store.buckets[w.bucket.Name], w.t.Context())
	if err := d.store.redis.ZAdd(w.t.Context(), r.keys.leases(), redis.Z{Member: id, Score: 1}).Err(); err != nil {
		w.t.Fatal(err)
	}
	now, err := d.store.redis.Time(w.t.Context()).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	r.clock.observe(time.Now(), time.Now(), now.UnixMicro())
	if err := r.sweep(w.t.Context(), &sweepWatch{}, r.clock.latest(time.Now()), false); err != nil {
		w.t.Fatal(err)
	}
}

// dispatch runs a dispatcher; the function that it returns stops it.
func dispatch(w *world, worker Worker, change func(*DispatcherConfig)) (stop func() error) {
	w.t.Helper()
	cancel, ended := start(w, worker, change)
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	w.t.Cleanup(func() { _ = stop() })
	return stop
}

func start(w *world, worker Worker, change func(*DispatcherConfig)) (cancel context.CancelFunc, ended chan error) {
	w.t.Helper()
	cfg := DispatcherConfig{
		Redis: connect(w.t, w.proxy.Addr()), Buckets: []Bucket{w.bucket}, Workers: map[string]Worker{"test": worker},
	}
	if change != nil {
		change(&cfg)
	}
	d, err := NewDispatcher(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended = make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return cancel, ended
}

// flowingWorld is a bucket with flows on a real server, whose dispatcher gives its
// attempts to the channel and its log to the buffer.
func flowingWorld(t *testing.T) (w *world, attempts chan *Attempt, logged *bytes.Buffer, stop func() error) {
	t.Helper()
	b := testBucket("b", 1000)
	flow := DefaultFlowSettings()
	flow.Key = FlowKeyJob
	b.Flow = &flow
	b.Retry = RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
	w = newWorld(t, b)
	if err := w.client.JoinPools(t.Context()); err != nil {
		t.Fatal(err)
	}
	attempts, logged = make(chan *Attempt, 100), &bytes.Buffer{}
	stop = dispatch(w, WorkerFunc(func(_ context.Context, a *Attempt) Outcome { attempts <- a; return Done(200) }), func(cfg *DispatcherConfig) {
		cfg.Logger = slog.New(slog.NewTextHandler(logged, nil)) // which locks
	})
	return w, attempts, logged, stop
}

// doom puts a job that waits on its last chance.
func doom(w *world, bucket string, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		meta := fmt.Sprintf("1 2 0 %d %d old ", lastChance, lastChance)
		if err := w.server.Client().HSet(w.t.Context(), bucketKeys(bucket).meta(), id, meta).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// run runs so many dispatchers of all the buckets until the test ends.
func run(w *poolWorld, dispatchers int, worker Worker) {
	w.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	var running sync.WaitGroup
	for range dispatchers {
		d, err := NewDispatcher(DispatcherConfig{Redis: connect(w.T, w.server.Addr()), Buckets: w.buckets, Workers: map[string]Worker{"test": worker}})
		if err != nil {
			w.Fatal(err)
		}
		running.Go(func() { _ = d.Run(ctx) })
	}
	w.Cleanup(func() { stop(); running.Wait() }) // before the connections are closed
}
