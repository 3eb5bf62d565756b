package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// batchWorker is a function as a [shaper.BatchWorker].
type batchWorker struct {
	shaper.WorkerFunc
	batch func(ctx context.Context, batch *shaper.Batch) []shaper.Outcome
}

func (w batchWorker) DeliverBatch(ctx context.Context, batch *shaper.Batch) []shaper.Outcome {
	return w.batch(ctx, batch)
}

// requestOf is a deliverer with a request in hand whose slot was so long ago.
func requestOf(t *testing.T, late time.Duration, worker shaper.Worker, ids ...string) (d *deliverer, jobs request, departures *int) {
	t.Helper()
	b := shaper.DefaultBucket()
	b.Name, b.Batch = "b", shaper.BatchSettings{MaxSize: 10, MaxBytes: 1000}
	c := &bucketConn{Bucket: store.SettleOnly(&b, store.BucketKeys("b")), store: &store.Store{}, life: t.Context(), log: slog.New(slog.DiscardHandler)}
	d = newDeliverer(newSettler(newLeaseHolder(c, nil), nil, nil), worker, 1)
	departures = new(int)
	for _, id := range ids {
		job := &leased{
			wakeLimit: lateWake, Attempt: shaper.Attempt{ID: id}, slot: time.Now().Add(-late), permitTTL: 250 * time.Millisecond, claim: "c", batch: 7,
		}
		job.depart = func(time.Duration) { job.departed = time.Now(); *departures++ }
		d.held.jobs[id] = job
		jobs = append(jobs, job)
	}
	return d, jobs, departures
}

func words(outcomes []shaper.Outcome) string {
	var words []string
	for _, o := range outcomes {
		words = append(words, strings.TrimSuffix(fmt.Sprint(o.Result, "/", o.Reason), "/"))
	}
	return strings.Join(words, " ")
}

func TestOutcomesOfARequest(t *testing.T) {
	t.Parallel()
	answer := func(outcomes ...shaper.Outcome) func(context.Context, *shaper.Batch) []shaper.Outcome {
		return func(_ context.Context, b *shaper.Batch) []shaper.Outcome {
			if b.Depart() != nil {
				return []shaper.Outcome{shaper.Returned("late"), shaper.Returned("late"), shaper.Returned("late")}
			}
			return outcomes
		}
	}
	failed := shaper.Retry("http_500", "")
	failed.Signal = shaper.SignalFailed
	done := shaper.Done(200)
	for _, c := range []struct {
		name       string
		late       time.Duration
		batch      func(context.Context, *shaper.Batch) []shaper.Outcome
		change     func(d *deliverer, jobs request)
		want       string
		signals    []shaper.Signal
		departures int
	}{
		{name: "each", batch: answer(done, failed, done), want: "done retry/http_500 done", signals: []shaper.Signal{shaper.SignalAccepted, 0, 0}, departures: 1},
		{name: "all failed", batch: answer(failed, failed, failed), want: "retry/http_500 retry/http_500 retry/http_500", signals: []shaper.Signal{shaper.SignalFailed, signalFailedToo, signalFailedToo}, departures: 1},
		{name: "too few", batch: answer(done), want: "done retry/no_result retry/no_result", signals: []shaper.Signal{shaper.SignalAccepted, 0, 0}, departures: 1},
		{name: "late", late: 20 * time.Millisecond, batch: answer(done, done, done), want: "returned/late_process returned/late_process returned/late_process"},
		{
			name: "late when it departs", batch: func(ctx context.Context, b *shaper.Batch) []shaper.Outcome {
				<-time.After(251 * time.Millisecond)
				return answer(done, done, done)(ctx, b)
			}, want: "returned/late returned/late returned/late",
		},
		{name: "a panic", batch: func(context.Context, *shaper.Batch) []shaper.Outcome { panic("x") }, want: "retry/panic retry/panic retry/panic", departures: 1},
		{name: "handed over", batch: answer(shaper.HandedOver(nil), done, done), want: "retry/no_result done done", signals: []shaper.Signal{0, shaper.SignalAccepted, 0}, departures: 1},
		{
			name: "one that does not agree", batch: answer(done, done), change: func(_ *deliverer, jobs request) { jobs[1].URL = "/other" },
			want: "done returned/no_company done", signals: []shaper.Signal{shaper.SignalAccepted, 0, 0}, departures: 1,
		},
		{
			name: "one that nobody can read", batch: answer(done, done), change: func(_ *deliverer, jobs request) { jobs[0].unreadable = errors.New("x") },
			want: "dead/unreadable done done", signals: []shaper.Signal{0, shaper.SignalAccepted, 0}, departures: 1,
		},
		{
			name: "one whose lease was lost", batch: answer(done, done, done), change: func(d *deliverer, jobs request) { delete(d.held.jobs, jobs[0].ID) },
			want: "done done done", signals: []shaper.Signal{shaper.SignalAccepted, 0, 0}, departures: 1,
		},
		{name: "all leases were lost", batch: answer(done, done, done), change: func(d *deliverer, _ request) { clear(d.held.jobs) }, want: "returned/stopped returned/stopped returned/stopped"},
		{
			name: "no batches any more", change: func(d *deliverer, _ request) {
				var alone shaper.Worker = shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return done })
				d.worker.Store(&alone)
			},
			want: "done returned/no_company returned/no_company", signals: []shaper.Signal{shaper.SignalAccepted, 0, 0}, departures: 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, jobs, departures := requestOf(t, c.late, batchWorker{batch: c.batch}, "a", "b", "c")
				if c.change != nil {
					c.change(d, jobs)
				}
				outcomes := d.deliver(jobs)
				if words(outcomes) != c.want || *departures != c.departures {
					t.Errorf("the outcomes are %s with %d departures, want %s with %d", words(outcomes), *departures, c.want, c.departures)
				}
				for i, want := range c.signals {
					must.Equal(t, outcomes[i].Signal, want, "job %d: signal", i)
				}
			})
		})
	}
}

// batchWorld is a bucket with batches and flows on a real server.
func batchWorld(t *testing.T, worker shaper.Worker, change func(*shaper.Bucket)) (w *rig.World, reg *prometheus.Registry, stop func() error, logged *bytes.Buffer) {
	t.Helper()
	b := rig.Bucket("b", 100)
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	b.Flow, b.Batch = &flow, shaper.BatchSettings{MaxSize: 5, MaxBytes: 1 << 20}
	b.Retry = shaper.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
	if change != nil {
		change(&b)
	}
	w = rig.NewWorld(t, b)
	reg, logged = prometheus.NewRegistry(), &bytes.Buffer{}
	must.OK(t, w.Client.JoinPools(t.Context()))
	stop = dispatch(w, worker, func(cfg *Config) {
		cfg.Registerer, cfg.Logger = reg, slog.New(slog.NewTextHandler(logged, nil))
	})
	return w, reg, stop, logged
}

// sentBatches notes what a worker got.
type sentBatches struct {
	mu      sync.Mutex
	batches [][]string
	ids     []string
	numbers map[string]int // of the last attempt, by job
	news    chan int
}

func (s *sentBatches) note(b *shaper.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, a := range b.Attempts {
		ids = append(ids, a.ID)
		s.numbers[a.ID] = a.Number
	}
	s.batches, s.ids = append(s.batches, ids), append(s.ids, b.ID)
	s.news <- len(ids)
}

// Jobs of a flow leave together, those that failed alone are sent again, and jobs and requests are counted apart.
func TestBatchesAreDelivered(t *testing.T) {
	t.Parallel()
	sent := &sentBatches{numbers: map[string]int{}, news: make(chan int, 100)}
	worker := batchWorker{batch: func(_ context.Context, b *shaper.Batch) []shaper.Outcome {
		defer sent.note(b)
		if err := b.Depart(); err != nil {
			return nil
		}
		b.Fault = errors.New("item 7 is foreign")
		outcomes := make([]shaper.Outcome, len(b.Attempts))
		for i, a := range b.Attempts {
			outcomes[i] = shaper.Done(200)
			if a.ID == "f3" && a.Number == 1 {
				outcomes[i] = shaper.Retry("http_500", "")
			}
		}
		return outcomes
	}}
	w, reg, stop, logged := batchWorld(t, worker, nil)
	var jobs []shaper.Job
	for i := range 10 {
		jobs = append(jobs, shaper.Job{Bucket: "b", Flow: "f", ID: fmt.Sprint("f", i), Payload: []byte("1")}, shaper.Job{Bucket: "b", Flow: "g", ID: fmt.Sprint("g", i), URL: "https://g.example/", Payload: []byte("1")})
	}
	if receipts, err := w.Client.Enqueue(t.Context(), jobs...); err != nil || receipts[19].Refusal != nil {
		t.Fatalf("%+v, %v", receipts, err)
	}
	for n := 0; n < 21; {
		n += <-sent.news
	}
	must.OK(t, stop())
	if len(sent.batches) != 5 || sent.numbers["f3"] != 2 || sent.numbers["f4"] != 1 {
		t.Errorf("%d requests: %v; f3 was sent %d times, f4 %d times", len(sent.batches), sent.batches, sent.numbers["f3"], sent.numbers["f4"])
	}
	for _, ids := range sent.batches {
		if slices.ContainsFunc(ids, func(id string) bool { return id[0] != ids[0][0] }) {
			t.Errorf("a batch of two flows: %v", ids)
		}
	}
	if slices.Sort(sent.ids); len(slices.Compact(slices.Clone(sent.ids))) != len(sent.ids) {
		t.Errorf("the ids are %v", sent.ids)
	}
	want := "# HELP tundish_batched_jobs_total Jobs that left in batches.\n# TYPE tundish_batched_jobs_total counter\ntundish_batched_jobs_total{bucket=\"b\"} 21\n" +
		"# HELP tundish_departures_total Requests that left, first tries and retries alike. A batch is one.\n# TYPE tundish_departures_total counter\ntundish_departures_total{bucket=\"b\"} 5\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "tundish_batched_jobs_total", "tundish_departures_total"); err != nil {
		t.Error(err)
	}
	if info := w.Info(); info.Unfinished != 0 || info.InFlight != 0 || info.Requests != 0 || info.Dead != 0 {
		t.Errorf("%+v", info)
	}
	if !strings.Contains(logged.String(), "item 7 is foreign") {
		t.Errorf("the log has no fault of the answer:\n%s", logged)
	}
}

// In a bucket with batches a job that leaves alone is a batch too, and one that can have no body is none.
func TestJobsWithoutCompany(t *testing.T) {
	t.Parallel()
	kinds := make(chan string, 10)
	worker := batchWorker{
		WorkerFunc: func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			kinds <- a.ID + " alone"
			return shaper.Done(200)
		},
		batch: func(_ context.Context, b *shaper.Batch) []shaper.Outcome {
			kinds <- b.Attempts[0].ID + " in a batch"
			return []shaper.Outcome{shaper.Done(200)}
		},
	}
	w, _, _, _ := batchWorld(t, worker, func(b *shaper.Bucket) { b.Flow = nil })
	for _, job := range []shaper.Job{{ID: "a", Payload: []byte("1")}, {ID: "b", Method: "GET"}, {ID: "c", Method: "GET"}, {ID: "d", Method: "PUT"}} {
		job.Bucket = "b"
		must.Get(w.Client.Enqueue(t.Context(), job))(t)
		want := job.ID + " in a batch"
		if job.Method == "GET" {
			want = job.ID + " alone"
		}
		if got := <-kinds; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestBatchesNeedABatchWorker(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 100)
	b.Batch = shaper.BatchSettings{MaxSize: 5, MaxBytes: 1 << 20}
	worker := shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) })
	_, err := New(Config{Redis: rig.Connect(t, "127.0.0.1:1"), Buckets: []shaper.Bucket{b}, Workers: map[string]shaper.Worker{"b": worker}})
	if err == nil || !strings.Contains(err.Error(), `bucket "b": has batches, and its worker delivers none`) {
		t.Errorf("the error is %v", err)
	}
}

// A reload takes the batches from a bucket while a batch is under way, and gives them back.
func TestReloadOfBatches(t *testing.T) {
	t.Parallel()
	got, answer := make(chan string, 10), make(chan struct{})
	ids := func(b *shaper.Batch) string {
		var ids []string
		for _, a := range b.Attempts {
			ids = append(ids, a.ID)
		}
		return strings.Join(ids, "+")
	}
	worker := batchWorker{
		WorkerFunc: func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			got <- a.ID + " alone"
			return shaper.Done(200)
		},
		batch: func(_ context.Context, b *shaper.Batch) []shaper.Outcome {
			got <- ids(b)
			<-answer
			return slices.Repeat([]shaper.Outcome{shaper.Done(200)}, len(b.Attempts))
		},
	}
	without := rig.Bucket("b", 100)
	with := without
	with.Batch = shaper.BatchSettings{MaxSize: 5, MaxBytes: 1 << 20}
	w := newReloaded(t, worker, nil, with)
	put := func(want ...string) {
		t.Helper()
		var jobs []shaper.Job
		for i := range 3 {
			jobs = append(jobs, shaper.Job{Bucket: "b", ID: fmt.Sprint(want[0][:1], i), Payload: []byte("1")})
		}
		must.Get(w.Client.Enqueue(t.Context(), jobs...))(t)
		for _, one := range want {
			must.Equal(t, <-got, one, "the worker got")
		}
	}
	put("a0+a1+a2")
	w.has(shaper.WorkerFunc(worker.Deliver), without)
	until(t, func() bool {
		return w.Server.Client().HGet(t.Context(), store.BucketKeys("b").Conf(), "batch").Val() == ""
	})
	close(answer) // of the batch that began before
	until(t, func() bool { return w.Server.Client().HLen(t.Context(), store.BucketKeys("b").Body()).Val() == 0 })
	put("b0 alone", "b1 alone", "b2 alone")
	w.has(worker, with)
	until(t, func() bool {
		return w.Server.Client().HGet(t.Context(), store.BucketKeys("b").Conf(), "batch").Val() != ""
	})
	put("c0+c1+c2")
	must.OK(t, w.stop())
	must.Equal(t, w.Server.Client().Exists(t.Context(), store.BucketKeys("b").Followers(), store.BucketKeys("b").Leases()).Val(), 0, "of followers and leases are left")
}
