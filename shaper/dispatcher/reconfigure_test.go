package dispatcher

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// reloaded is a dispatcher that runs, and is given other buckets.
type reloaded struct {
	*rig.PoolWorld
	d        *Dispatcher
	registry *prometheus.Registry
	log      bytes.Buffer // locked by its handler; read when the dispatcher has stopped
	stop     func() error
}

// newReloaded runs a dispatcher of the first of the buckets; producers and operators know all.
func newReloaded(t *testing.T, worker shaper.Worker, change func(*Config), buckets ...shaper.Bucket) *reloaded {
	t.Helper()
	w := &reloaded{PoolWorld: rig.NewPoolWorld(t, buckets...), registry: prometheus.NewRegistry()}
	cfg := Config{
		Redis: rig.Connect(t, w.Server.Addr()), Buckets: buckets[:1], Workers: rig.Workers(buckets[:1], worker),
		Enqueue: w.Client.Enqueue, Registerer: w.registry, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if w.d, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.d.Run(ctx) }()
	w.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = w.stop() })
	return w
}

// has gives the dispatcher these buckets, with one worker for all.
func (w *reloaded) has(worker shaper.Worker, buckets ...shaper.Bucket) {
	w.Helper()
	must.OK(w, w.d.Reconfigure(buckets, rig.Workers(buckets, worker), nil))
}

func (w *reloaded) wantState(bucket, id string, want shaper.State) {
	w.Helper()
	must.Equal(w, must.Get(w.Client.Job(w.Context(), bucket, id))(w).State, want, "job %s of %s is", id, bucket)
}

// until waits for something that happens in the background.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it has not happened within a minute")
		}
	}
}

// A bucket that comes is drained. Of one that leaves nothing more is claimed, a delivery under way ends, its series go, and what
// waits is delivered when it comes back.
func TestBucketComesLeavesAndComesBack(t *testing.T) {
	t.Parallel()
	a, b := rig.Bucket("a", 1000), rig.Bucket("b", 1000)
	worker := rig.NewWaiting()
	w := newReloaded(t, worker, nil, a, b)
	w.Enqueue("b", 1, nil)
	if series := rig.Scrape(t, w.registry, "tundish_departures_total"); len(series) != 1 {
		t.Errorf("before it comes: %v", series)
	}
	w.has(worker, a, b)
	if got := <-worker.Began; got.Bucket != "b" {
		t.Fatalf("delivered %+v", got)
	}

	w.has(worker, a)
	left := (*w.d.loops.Load())
	if len(left) != 1 || left[0].Name != "a" {
		t.Fatalf("%d loops", len(left))
	}
	w.Enqueue("b", 2, func(job *shaper.Job) { job.ID = "later" + job.ID })
	worker.End <- shaper.Done(200)
	until(t, func() bool {
		info, err := w.Client.Job(t.Context(), "b", "b0")
		return err == nil && info.State == shaper.StateDone
	})
	until(t, func() bool { return len(rig.Scrape(t, w.registry, "tundish_departures_total")) == 1 })
	for name := range rig.Scrape(t, w.registry, "tundish_") {
		if strings.Contains(name, "bucket=b") {
			t.Errorf("the series %s is still there", name)
		}
	}
	w.wantState("b", "laterb0", shaper.StateQueued)

	w.has(worker, a, b)
	for range 2 {
		if got := <-worker.Began; got.Bucket != "b" || got.Number != 1 {
			t.Errorf("delivered %+v", got)
		}
		worker.End <- shaper.Done(200)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.wantState("b", "laterb0", shaper.StateDone)
	w.wantState("b", "laterb1", shaper.StateDone)
}

// A bucket that leaves gives its deliveries as long as a stop does. Then they are cut off, and their outcomes are kept.
func TestBucketThatLeftIsCutOff(t *testing.T) {
	t.Parallel()
	a, b := rig.Bucket("a", 1000), rig.Bucket("b", 1000)
	worker := rig.NewWaiting()
	w := newReloaded(t, worker, func(cfg *Config) { cfg.ShutdownTimeout = time.Millisecond }, b, a)
	w.Enqueue("b", 1, nil)
	<-worker.Began
	w.has(worker, a)
	<-worker.Cause
	until(t, func() bool {
		info, err := w.Client.Job(t.Context(), "b", "b0")
		return err == nil && info.State == shaper.StateRetrying && info.Last.Reason == "cut_off"
	})
	w.Enqueue("a", 1, nil) // the others go on
	<-worker.Began
	worker.End <- shaper.Done(200)
	until(t, func() bool {
		info, err := w.Client.Job(t.Context(), "a", "a0")
		return err == nil && info.State == shaper.StateDone
	})
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if log := w.log.String(); !strings.Contains(log, "nothing more is claimed of a bucket") || !strings.Contains(log, "were cut off") {
		t.Errorf("the log says:\n%s", log)
	}
}

// A delivery ends with the worker that it began with; the next one has the new worker.
func TestWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	a := rig.Bucket("a", 1000)
	before, after := rig.NewWaiting(), rig.NewWaiting()
	w := newReloaded(t, before, nil, a)
	w.Enqueue("a", 1, nil)
	<-before.Began
	w.has(after, a)
	w.Enqueue("a", 1, func(job *shaper.Job) { job.ID = "next" })
	must.Equal(t, (<-after.Began).ID, "next", "the new worker delivers")
	after.End <- shaper.Done(200)
	before.End <- shaper.Done(200)
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.wantState("a", "a0", shaper.StateDone)
	w.wantState("a", "next", shaper.StateDone)
}

// An empty bucket changes its pool under a dispatcher that runs, and is drained where it is then.
func TestPoolChangesUnderADispatcher(t *testing.T) {
	t.Parallel()
	alone := rig.Bucket("b", 1000)
	alone.DedupeWindow = 0
	pooled := rig.In(rig.PoolNamed("vendor"), alone)
	worker := rig.NewWaiting()
	w := newReloaded(t, worker, nil, alone)
	until(t, func() bool { return w.d.store.Known("b").Configured.Load() })
	for _, b := range []shaper.Bucket{pooled, alone, pooled} {
		must.OK(t, w.Client.Reconfigure([]shaper.Bucket{b}))
		must.OK(t, w.Client.JoinPools(t.Context()))
		w.has(worker, b)
		w.Enqueue("b", 1, nil)
		must.Equal(t, (<-worker.Began).ID, "b0", "delivered")
		worker.End <- shaper.Done(200)
		// It is empty before it goes on.
		until(t, func() bool {
			n, err := w.Server.Client().HLen(t.Context(), store.TaggedKeys(tagOf(b), "b").Body()).Result()
			return err == nil && n == 0
		})
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

func tagOf(b shaper.Bucket) string {
	if b.Pool != nil {
		return b.Pool.Name
	}
	return b.Name
}

// A hook that comes is told of the next event, and one that left is not.
func TestHooksComeAndGo(t *testing.T) {
	t.Parallel()
	a, to := rig.Bucket("a", 1000), rig.Bucket("to", 1000)
	w := newReloaded(t, rig.NewWaiting(), nil, a, to)
	told := make(chan *shaper.Attempt, 1)
	workers := map[string]shaper.Worker{
		"a": shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Dead("gone", "") }),
		"to": shaper.WorkerFunc(func(_ context.Context, attempt *shaper.Attempt) shaper.Outcome {
			told <- attempt
			return shaper.Done(200)
		}),
	}
	a.Events = []shaper.Event{shaper.EventJobDead}
	hooks := []Hook{{Events: a.Events, Bucket: "to", URL: "https://hook.example"}}
	must.OK(t, w.d.Reconfigure([]shaper.Bucket{a, to}, workers, hooks))
	must.OK(t, w.Client.Reconfigure([]shaper.Bucket{a, to}))
	w.Enqueue("a", 1, nil)
	if got := <-told; got.URL != "https://hook.example" || !strings.Contains(string(got.Payload), `"job":"a0"`) {
		t.Errorf("told %s %s", got.URL, got.Payload)
	}
	must.OK(t, w.d.Reconfigure([]shaper.Bucket{a, to}, workers, nil))
	must.Equal(t, len(*w.d.hooks.Load()), 0, "hooks are left")
}

// What is not valid changes nothing.
func TestReconfigureIsAllOrNothing(t *testing.T) {
	t.Parallel()
	a, b := rig.Bucket("a", 1000), rig.Bucket("b", 1000)
	worker := rig.NewWaiting()
	w := newReloaded(t, worker, func(cfg *Config) { cfg.Enqueue = nil }, a, b)
	bad, flowing := b, rig.Flowing("a", shaper.FlowKeyJob)
	bad.Capacity = -1
	both := rig.Workers([]shaper.Bucket{a, b}, worker)
	for name, c := range map[string]struct {
		buckets []shaper.Bucket
		workers map[string]shaper.Worker
		hooks   []Hook
		want    string
	}{
		"no worker":       {[]shaper.Bucket{a, b}, rig.Workers([]shaper.Bucket{a}, worker), nil, `bucket "b": no worker`},
		"not valid":       {[]shaper.Bucket{a, bad}, both, nil, `bucket "b": capacity`},
		"twice":           {[]shaper.Bucket{a, b, b}, both, nil, `bucket "b": is given twice`},
		"flows":           {[]shaper.Bucket{flowing, b}, both, nil, `bucket "a": flow: whether there are flows`},
		"hooks, no way":   {[]shaper.Bucket{a, b}, both, []Hook{{Bucket: "a"}}, "no Enqueue"},
		"none of it, yet": {nil, nil, []Hook{{Bucket: "a"}}, "no Enqueue"},
	} {
		if err := w.d.Reconfigure(c.buckets, c.workers, c.hooks); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names := w.d.store.Names(); fmt.Sprint(names) != "[a]" || len(*w.d.hooks.Load()) != 0 {
		t.Errorf("the buckets are %v", names)
	}
	w.Enqueue("a", 1, nil)
	<-worker.Began
	worker.End <- shaper.Done(200)
}

// Two dispatchers are given other buckets, workers and pools again and again, under load. Every job is delivered once.
func TestReconfigureUnderLoad(t *testing.T) {
	t.Parallel()
	const rounds, jobs = 60, 300
	pool := shaper.Pool{Name: "vendor", Rate: rig.PerSecond(3000)}
	stays, shares, comes := rig.Bucket("stays", 1000), rig.Pooled("shares", 1000, 1, pool), rig.Pooled("comes", 1000, 1, pool)
	w := rig.NewPoolWorld(t, stays, shares, comes)
	var mu sync.Mutex
	came := map[string]int{}
	var total atomic.Int64
	worker := func() shaper.Worker { // another one each time
		return shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			mu.Lock()
			came[a.Bucket+" "+a.ID]++
			mu.Unlock()
			total.Add(1)
			return shaper.Done(200)
		})
	}
	sets := [][]shaper.Bucket{{stays, shares, comes}, {stays, shares}, {comes, stays, shares}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	var all []*Dispatcher
	for range 2 {
		d := must.Get(New(Config{Timeout: rig.Patience, Redis: rig.Connect(t, w.Server.Addr()), Buckets: sets[0], Workers: rig.Workers(sets[0], worker()), Registerer: prometheus.NewRegistry()}))(t)
		all = append(all, d)
		running.Go(func() {
			if err := d.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for round := range rounds {
		for _, name := range []string{"stays", "shares", "comes"} {
			w.Enqueue(name, jobs/rounds, func(job *shaper.Job) { job.ID = fmt.Sprint(round, "-", job.ID) })
		}
		for i, d := range all {
			set := sets[(round+i)%len(sets)]
			must.OK(t, d.Reconfigure(set, rig.Workers(set, worker()), nil))
		}
	}
	for _, d := range all {
		must.OK(t, d.Reconfigure(sets[0], rig.Workers(sets[0], worker()), nil))
	}
	until(t, func() bool { return total.Load() >= 3*jobs })
	stop()
	running.Wait()
	for job, n := range came {
		must.Equal(t, n, 1, "job %s was delivered times", job)
	}
	must.Equal(t, len(came), 3*jobs, "jobs were delivered")
	t.Logf("%d reloads of two dispatchers: %d jobs, each delivered once", 2*rounds, len(came))
}
