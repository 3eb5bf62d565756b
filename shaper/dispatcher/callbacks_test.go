package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// telling is a bucket "b" whose outcomes are told by jobs of the bucket "told".
type telling struct {
	t       *testing.T
	redis   *redis.Client
	client  *producer.Client
	buckets []shaper.Bucket
	d       *Dispatcher
	heard   chan *shaper.Attempt
}

func newTelling(t *testing.T, change func(b, told *shaper.Bucket)) *telling {
	t.Helper()
	b, told := rig.Bucket("b", 1000), rig.Bucket("told", 2000)
	b.Retry.MaxAttempts, b.Retry.MinBackoff, b.Retry.MaxBackoff = 2, time.Millisecond, time.Millisecond
	b.Callbacks, told.Shed = shaper.Callbacks{Bucket: "told", Origins: []string{shaper.AnyOrigin}}, shaper.NoShedding
	if change != nil {
		change(&b, &told)
	}
	w := &telling{t: t, redis: redistest.Start(t).Client(), buckets: []shaper.Bucket{b, told}, heard: make(chan *shaper.Attempt, 10_000)}
	var err error
	if w.client, err = producer.New(producer.Config{Timeout: rig.Patience, Redis: w.redis, Buckets: w.buckets}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.Close)
	w.d = must.Get(New(Config{Redis: w.redis, Buckets: w.buckets, Enqueue: w.client.Enqueue, Workers: map[string]shaper.Worker{
		"b": obeyBatches{shaper.WorkerFunc(obey)},
		"told": shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			if err := a.Depart(); err != nil {
				return shaper.Returned("late")
			}
			w.heard <- a
			return shaper.Done(200)
		}),
	}}))(t)
	return w
}

// run has the dispatcher run until the test ends.
func (w *telling) run() {
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.d.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

// bucketLoop is that of the bucket, for a test that makes each step itself.
func (w *telling) bucketLoop() *bucketLoop {
	return newBucketLoop(w.d, w.d.store.Known("b"), w.t.Context())
}

func (w *telling) enqueue(jobs ...shaper.Job) {
	w.t.Helper()
	for i := range jobs {
		jobs[i].Bucket = "b"
	}
	receipts := must.Get(w.client.Enqueue(w.t.Context(), jobs...))(w.t)
	for _, r := range receipts {
		if r.Refusal != nil {
			w.t.Fatal(r.Refusal.Detail)
		}
	}
}

// next is the next callback that arrives.
func (w *telling) next() (*shaper.Attempt, map[string]any) {
	w.t.Helper()
	select {
	case a := <-w.heard:
		var body map[string]any
		if err := json.Unmarshal(a.Payload, &body); err != nil {
			w.t.Fatalf("%s: %v", a.Payload, err)
		}
		return a, body
	case <-time.After(time.Minute):
		w.t.Fatal("no callback came")
	}
	return nil, nil
}

// write puts callbacks into Redis as scripts do.
func (w *telling) write(n int) {
	w.t.Helper()
	k := store.BucketKeys("b")
	for i := range n {
		name := fmt.Sprintf("%d 1 j%d", 1783228800000000+i, i)
		text := fmt.Sprintf("0 1783228800000000 AAAAAAAAAAAcn001^ {\"cu\":\"https://a.example/\"}\n{\"state\":\"done\",\"flow\":\"flow%d\",\"attempts\":1,\"status\":200}\nanswer", i)
		must.OK(w.t, errors.Join(w.redis.HSet(w.t.Context(), k.CallbackTexts(), name, text).Err(), w.redis.ZAdd(w.t.Context(), k.Callbacks(), redis.Z{Member: name, Score: float64(1783228800000000 + i)}).Err()))
	}
}

// counts are the callbacks that wait, by both keys, and the jobs that were made of some.
func (w *telling) counts() string {
	w.t.Helper()
	ctx, k := w.t.Context(), store.BucketKeys("b")
	return fmt.Sprint(w.redis.HLen(ctx, k.CallbackTexts()).Val(), w.redis.ZCard(ctx, k.Callbacks()).Val(), w.redis.HLen(ctx, store.BucketKeys("told").Body()).Val())
}

// Who asked hears how each job ended, whoever ended it, and of no job twice.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	w := newTelling(t, func(b, _ *shaper.Bucket) {
		b.Callbacks.URL, b.Results.MaxBody = "https://default.example/", 40_000
		b.Callbacks.MaxPayload = 16 << 10
	})
	w.run()
	long := strings.Repeat("<ä>", 8000) // 32,000 bytes
	for name, tt := range map[string]struct {
		job  shaper.Job
		want string
	}{
		"done":         {shaper.Job{CallbackURL: "https://a.example/x", FailureURL: "https://b.example/", Payload: []byte("hi")}, `https://a.example/x job.done done 200 "hi" 1`},
		"dead":         {shaper.Job{CallbackURL: "https://a.example/", FailureURL: "https://b.example/", Payload: []byte("dead")}, `https://b.example/ job.dead dead 404 "dead" 1 permanent http_404`},
		"dead-too":     {shaper.Job{CallbackURL: "https://a.example/", Payload: []byte("dead")}, `https://a.example/ job.dead dead 404 "dead" 1 permanent http_404`},
		"default":      {shaper.Job{Payload: []byte("hi")}, `https://default.example/ job.done done 200 "hi" 1`},
		"failure-only": {shaper.Job{FailureURL: "https://b.example/", Payload: []byte("unreachable")}, `https://b.example/ job.dead dead 0 "" 2 attempts-exhausted connect`},
		"second-try":   {shaper.Job{Payload: []byte("retry")}, `https://default.example/ job.done done 200 "retry" 2`},
		"bytes":        {shaper.Job{Payload: []byte("dead\xff")}, `https://default.example/ job.dead dead 404 base64 "ZGVhZP8=" 1 permanent http_404`},
		"expired":      {shaper.Job{Payload: []byte("x"), Delay: 300 * time.Millisecond, ExpiresIn: time.Millisecond}, `https://default.example/ job.dead dead 0 "" 0 expired expired`},
		"cut":          {shaper.Job{Payload: []byte(long)}, "cut"},
	} {
		tt.job.ID, tt.job.Flow = name, "a flow"
		w.enqueue(tt.job)
		a, body := w.next()
		data, _ := body["data"].(map[string]any)
		text := func(key string) string { s, _ := data[key].(string); return s }
		status, _ := data["status"].(float64)
		got := fmt.Sprintf("%s %s %s %.0f %q %v", a.URL, body["type"], text("state"), status, text("body"), data["attempts"])
		if data["body_base64"] != nil {
			got = fmt.Sprintf("%s %s %s %.0f base64 %q %v", a.URL, body["type"], text("state"), status, text("body_base64"), data["attempts"])
		}
		for _, key := range []string{"cause", "reason"} {
			if data[key] != nil {
				got += " " + text(key)
			}
		}
		if name == "cut" {
			if cut := text("body"); data["cut"] != true || len(a.Payload) > 16<<10 || len(a.Payload) < 16<<10-10 || !strings.HasPrefix(long, cut) {
				t.Errorf("cut: a payload of %d bytes, a body of %d, %v", len(a.Payload), len(cut), data["cut"])
			}
		} else if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(body["timestamp"])); err != nil || time.Since(at).Abs() > time.Minute {
			t.Errorf("%s: at %v", name, body["timestamp"])
		}
		if text("id") != name || text("bucket") != "b" || text("flow") != "a flow" || a.Bucket != "told" || !strings.HasPrefix(a.ID, shaper.CallbackID) || a.Flow != "a flow" {
			t.Errorf("%s: %v by job %s of flow %s", name, data, a.ID, a.Flow)
		}
	}
	// Jobs of hooks and of callbacks, and those that are sent once, have none.
	w.enqueue(shaper.Job{ID: shaper.HookID + "1", Payload: []byte("hi")}, shaper.Job{ID: shaper.CallbackID + "1", Payload: []byte("hi")}, shaper.Job{ID: "once", Once: true, Payload: []byte("hi")},
		shaper.Job{ID: "last", Payload: []byte("hi")})
	if _, body := w.next(); !strings.Contains(fmt.Sprint(body), "id:last") {
		t.Errorf("heard %v", body)
	}
	if n := len(w.heard); n > 0 {
		t.Errorf("%d more came", n)
	}
}

// A job may name URLs only where its bucket makes callbacks, and only those that can be.
func TestCallbackURLs(t *testing.T) {
	t.Parallel()
	w := newTelling(t, nil)
	for name, job := range map[string]shaper.Job{
		"no callbacks": {Bucket: "told", CallbackURL: "https://a.example/"},
		"relative":     {Bucket: "b", FailureURL: "/path"},
		"once":         {Bucket: "b", CallbackURL: "https://a.example/", Once: true},
		"too long":     {Bucket: "b", CallbackURL: "https://a.example/" + strings.Repeat("x", shaper.MaxCallbackURL)},
		"not UTF-8":    {Bucket: "b", CallbackURL: "https://a.example/\xff"},
	} {
		_, err := w.client.Enqueue(t.Context(), job)
		if fault, ok := errors.AsType[*shaper.FieldError](err); !ok || !strings.HasSuffix(fault.Field, "_url") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{Redis: w.redis, Buckets: w.buckets, Workers: rig.Workers(w.buckets, shaper.WorkerFunc(obey))}); err == nil || !strings.Contains(err.Error(), "Enqueue") {
		t.Errorf("a dispatcher without Enqueue: %v", err)
	}
}

// Whatever reply is lost, and wherever a dispatcher dies, each callback becomes one job.
func TestCallbacksAndLostReplies(t *testing.T) {
	t.Parallel()
	w := newTelling(t, nil)
	w.write(250)
	lost := errors.New("the reply was lost")
	for round := range 100 {
		d := w.bucketLoop() // another dispatcher each time
		calls := 0
		d.callbacks.enqueue = func(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error) {
			receipts, err := w.client.Enqueue(ctx, jobs...)
			if calls++; round%3 == 0 {
				return nil, lost
			}
			return receipts, err
		}
		switch round % 3 {
		case 0: // it does not learn that the jobs are in
			d.callbacks.moveAll(t.Context())
		case 1: // it dies before it takes them out
			page := must.Get(d.callbacks.take(t.Context(), 30, nil))(t)
			d.callbacks.enqueueJobs(t.Context(), page)
		default: // it dies after it took some out and others
			page := must.Get(d.callbacks.take(t.Context(), 20, nil))(t)
			said, _ := d.callbacks.enqueueJobs(t.Context(), page)
			for range 2 {
				must.Get(d.callbacks.take(t.Context(), 5, said))(t)
			}
		}
		// 5 s later.
		for _, z := range w.redis.ZRangeWithScores(t.Context(), d.Keys.Callbacks(), 0, -1).Val() {
			w.redis.ZAdd(t.Context(), d.Keys.Callbacks(), redis.Z{Member: z.Member, Score: 1})
		}
	}
	d := w.bucketLoop()
	if pause := d.callbacks.moveAll(t.Context()); pause != 0 || w.counts() != "0 0 250" {
		t.Errorf("waiting, waiting and made are %s, pause %s", w.counts(), pause)
	}
}

// While the other bucket is full callbacks stay, in their order; one that alone is refused does not stop the others.
func TestCallbacksWaitForRoom(t *testing.T) {
	t.Parallel()
	w := newTelling(t, func(b, told *shaper.Bucket) {
		b.Capacity, b.Shed = 1, shaper.NoShedding
		flow := shaper.DefaultFlowSettings()
		flow.Key, flow.Capacity = shaper.FlowKeyJob, 1
		told.Flow, told.Capacity = &flow, 3
	})
	w.write(6)
	d := w.bucketLoop()
	receipts, err := w.client.Enqueue(t.Context(), shaper.Job{Bucket: "told", ID: "one", Flow: "flow1", Payload: []byte("x")})
	if err != nil || receipts[0].Refusal != nil {
		t.Fatal(receipts, err)
	}
	pause := d.callbacks.moveAll(t.Context())
	if pause < minCallbackPause || pause > maxCallbackPause || w.counts() != "4 4 3" {
		t.Errorf("full: %s, pause %s", w.counts(), pause)
	}
	waits := w.redis.ZRangeWithScores(t.Context(), d.Keys.Callbacks(), 0, -1).Val()
	if names := fmt.Sprint(waits[0].Member, waits[1].Member, waits[2].Member); !strings.Contains(names, "j3") || strings.Contains(names, "j1") {
		t.Errorf("in the order %v", waits)
	}
	for range 3 { // it goes on as there is room, though a flow has none
		must.OK(t, w.redis.HIncrBy(t.Context(), store.BucketKeys("told").Conf(), "capacity", 1).Err())
		d.callbacks.moveAll(t.Context())
	}
	must.Equal(t, w.counts(), "1 1 6", "with room")
	// The bucket of the jobs is full of its callbacks too, and says so.
	receipts, err = w.client.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte("x")})
	if err != nil || receipts[0].Refusal == nil || receipts[0].Refusal.Reason != shaper.ReasonBucketFull || !strings.Contains(receipts[0].Refusal.Detail, "callbacks") {
		t.Errorf("a job got %+v, %v", receipts, err)
	}
}

// A callback that cannot be sent waits alone.
func TestCallbacksThatCannotBeSent(t *testing.T) {
	t.Parallel()
	w := newTelling(t, nil)
	w.write(4)
	k := store.BucketKeys("b")
	names := w.redis.HKeys(t.Context(), k.CallbackTexts()).Val()
	slices.Sort(names)
	w.redis.HSet(t.Context(), k.CallbackTexts(), names[0], "not ours")
	w.redis.HSet(t.Context(), k.CallbackTexts(), names[1], "0 1 AAAAAAAAAAAcn001^ \n{\"state\":\"done\"}\n") // no URL
	w.redis.HSet(t.Context(), k.CallbackTexts(), names[2], "0 1 AAAAAAAAAAAcn001^ {\"cu\":\"https://a.example/\\u0000\",\"f\":\""+strings.Repeat("x", 300)+"\"}\n5 1 0 0 0 c {}\n")
	d := w.bucketLoop()
	if pause := d.callbacks.moveAll(t.Context()); pause != 0 || w.counts() != "3 3 1" {
		t.Errorf("waiting, waiting and made are %s, pause %s", w.counts(), pause)
	}
}

// A bucket makes callbacks from the reload on that names the other bucket, in producers and in dispatchers.
func TestCallbacksAfterAReload(t *testing.T) {
	t.Parallel()
	w := newTelling(t, func(b, _ *shaper.Bucket) { b.Callbacks = shaper.Callbacks{} })
	w.run()
	w.enqueue(shaper.Job{ID: "before", Payload: []byte("hi")})
	changed := slices.Clone(w.buckets)
	changed[0].Callbacks = shaper.Callbacks{Bucket: "told", URL: "https://default.example/"}
	must.OK(t, errors.Join(w.client.Reconfigure(changed), w.d.Reconfigure(changed, w.d.workers, nil), w.d.JoinPools(t.Context())))
	w.enqueue(shaper.Job{ID: "after", Payload: []byte("hi")})
	if a, body := w.next(); a.URL != "https://default.example/" || !strings.Contains(fmt.Sprint(body), "id:after") {
		t.Errorf("%s heard %v", a.URL, body)
	}
}

// What ends while a dispatcher stops is told before it has stopped.
func TestCallbacksOfAStop(t *testing.T) {
	t.Parallel()
	w := newTelling(t, func(b, _ *shaper.Bucket) { b.Callbacks.URL = "https://default.example/" })
	began, end := make(chan struct{}), make(chan struct{})
	w.d.workers["b"] = shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		if err := a.Depart(); err != nil {
			return shaper.Returned("late")
		}
		close(began)
		<-end
		return shaper.Done(200)
	})
	w.enqueue(shaper.Job{ID: "last", Payload: []byte("hi")})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.d.Run(ctx) }()
	<-began
	stop()
	close(end)
	if err := <-ended; err != nil || w.counts() != "0 0 1" {
		t.Errorf("waiting, waiting and made are %s, %v", w.counts(), err)
	}
}
