package dispatcher

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// takeLease is what the sweeper does when a lease has run out.
func takeLease(w *rig.World, id string) {
	w.T.Helper()
	d := must.Get(New(Config{
		Redis: w.Server.Client(), Buckets: []shaper.Bucket{w.Bucket}, Workers: rig.Workers([]shaper.Bucket{w.Bucket}, shaper.WorkerFunc(w.Note)), Timeout: rig.Patience,
	}))(w.T)
	r := newBucketLoop(d, d.store.Known(w.Bucket.Name), w.T.Context())
	meta := func() string { return d.store.Redis.HGet(w.T.Context(), r.Keys.Meta(), id).Val() }
	for before := meta(); meta() == before; { // the holder may extend the lease in between
		must.OK(w.T, d.store.Redis.ZAdd(w.T.Context(), r.Keys.Leases(), redis.Z{Member: id, Score: 1}).Err())
		now := must.Get(d.store.Redis.Time(w.T.Context()).Result())(w.T)
		r.clock.observe(time.Now(), time.Now(), now.UnixMicro())
		must.OK(w.T, patrolOf(r).sweep(w.T.Context(), r.clock.latest(time.Now()), false))
	}
}

// patrolOf is another patrol of a bucket, which has seen nothing yet.
func patrolOf(l *bucketLoop) *bucketPatrol {
	p := newBucketPatrol(l.claims, l.patrol.deaths, l.shared, l.patrol.stall)
	p.nextAudit = time.Now().Add(time.Hour)
	return p
}

// dispatch runs a dispatcher; the function that it returns stops it.
func dispatch(w *rig.World, worker shaper.Worker, change func(*Config)) (stop func() error) {
	w.T.Helper()
	cancel, ended := start(w, worker, change)
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	w.T.Cleanup(func() { _ = stop() })
	return stop
}

func start(w *rig.World, worker shaper.Worker, change func(*Config)) (cancel context.CancelFunc, ended chan error) {
	w.T.Helper()
	cfg := Config{
		Redis: rig.Connect(w.T, w.Proxy.Addr()), Buckets: []shaper.Bucket{w.Bucket}, Workers: rig.Workers([]shaper.Bucket{w.Bucket}, worker),
	}
	if change != nil {
		change(&cfg)
		cfg.Workers = rig.Workers(cfg.Buckets, worker)
	}
	d := must.Get(New(cfg))(w.T)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.T.Context()))
	ended = make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return cancel, ended
}

// flowingWorld is a bucket with flows on a real server, whose dispatcher gives its
// attempts to the channel and its log to the buffer.
func flowingWorld(t *testing.T) (w *rig.World, attempts chan *shaper.Attempt, logged *bytes.Buffer, stop func() error) {
	t.Helper()
	b := rig.Bucket("b", 1000)
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	b.Flow = &flow
	b.Retry = shaper.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
	w = rig.NewWorld(t, b)
	must.OK(t, w.Client.JoinPools(t.Context()))
	attempts, logged = make(chan *shaper.Attempt, 100), &bytes.Buffer{}
	stop = dispatch(w, shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome { attempts <- a; return shaper.Done(200) }), func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(logged, nil)) // which locks
	})
	return w, attempts, logged, stop
}

// doom puts a job that waits on its last chance.
func doom(w *rig.World, bucket string, ids ...string) {
	w.T.Helper()
	for _, id := range ids {
		meta := fmt.Sprintf("1 2 0 %d %d old ", lastChance, lastChance)
		must.OK(w.T, w.Server.Client().HSet(w.T.Context(), store.BucketKeys(bucket).Meta(), id, meta).Err())
	}
}

// run runs so many dispatchers of all the buckets until the test ends. The hooks see what they send.
func run(w *rig.PoolWorld, dispatchers int, worker shaper.Worker, hooks ...redis.Hook) {
	w.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	var running sync.WaitGroup
	for range dispatchers {
		conn := rig.Connect(w.T, w.Server.Addr())
		for _, hook := range hooks {
			conn.AddHook(hook)
		}
		d := must.Get(New(Config{Redis: conn, Buckets: w.Buckets, Workers: rig.Workers(w.Buckets, worker)}))(w)
		running.Go(func() { _ = d.Run(ctx) })
	}
	w.Cleanup(func() { stop(); running.Wait() }) // before the connections are closed
}
