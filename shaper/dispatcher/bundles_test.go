package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// counted waits until so many jobs of a bundle have ended, and returns how.
func (w *telling) counted(id string, ended int64) string {
	w.t.Helper()
	for {
		b := must.Get(w.client.Bundle(w.t.Context(), "b", id))(w.t)
		if b.Ended() >= ended {
			return fmt.Sprintf("%d done, %d dead, %d dropped, %d cancelled, finished %t", b.Done, b.Dead, b.Dropped, b.Cancelled, !b.Finished.IsZero())
		}
		select {
		case <-w.t.Context().Done():
			w.t.Fatalf("%s: %+v", id, b)
		case <-time.After(time.Millisecond):
		}
	}
}

func (w *telling) open(bundle shaper.Bundle) {
	w.t.Helper()
	must.Get(w.client.OpenBundle(w.t.Context(), "b", bundle))(w.t)
}

// obeyBatches delivers each job of a batch by itself.
type obeyBatches struct{ shaper.Worker }

func (w obeyBatches) DeliverBatch(ctx context.Context, batch *shaper.Batch) []shaper.Outcome {
	outcomes := make([]shaper.Outcome, len(batch.Attempts))
	for i, a := range batch.Attempts {
		outcomes[i] = w.Deliver(ctx, a)
	}
	return outcomes
}

// A bundle counts its jobs however they end, in buckets of all kinds, and tells once that all have.
func TestBundle(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *shaper.Bucket){
		"plain":   func(*shaper.Bucket) {},
		"batches": func(b *shaper.Bucket) { b.Batch.MaxSize, b.Batch.MaxBytes = 3, 1000 },
		"flows": func(b *shaper.Bucket) {
			flow := shaper.DefaultFlowSettings()
			flow.Key = shaper.FlowKeyJob
			b.Flow = &flow
		},
		"groups": func(b *shaper.Bucket) {
			flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
			flow.Key, group.Key = shaper.FlowKeyJob, shaper.FlowKeyJob
			b.Flow, b.Group = &flow, &group
		},
		"budgets": func(b *shaper.Bucket) {
			b.Budgets = shaper.Budgets{{Unit: "tokens", Count: 1_000_000, Per: time.Minute}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTelling(t, func(b, _ *shaper.Bucket) { change(b) })
			w.run()
			w.open(shaper.Bundle{ID: "seven", CallbackURL: "https://a.example/finished"})
			far := time.Hour
			jobs := []shaper.Job{
				{ID: "done", Payload: []byte("hi")},
				{ID: "told", Payload: []byte("hi"), CallbackURL: "https://a.example/one"},
				{ID: "retried", Payload: []byte("retry")},
				{ID: "dead", Payload: []byte("dead")},
				{ID: "expired", Payload: []byte("x"), Delay: 20 * time.Millisecond, ExpiresIn: time.Millisecond},
				{ID: "cancelled", Payload: []byte("x"), Delay: far},
				{ID: "purged", Payload: []byte("x"), Delay: far},
			}
			for i := range jobs {
				jobs[i].Bundle, jobs[i].Flow, jobs[i].Group = "seven", "a flow", "a group"
				if name == "plain" || name == "budgets" || name == "batches" {
					jobs[i].Flow, jobs[i].Group = "", ""
				}
				if name == "budgets" {
					jobs[i].Units = shaper.Units{"input": 5}
				}
			}
			w.enqueue(jobs...)
			w.enqueue(shaper.Job{ID: "of-none", Flow: jobs[0].Flow, Group: jobs[0].Group, Payload: []byte("hi")}, jobs[0]) // and a duplicate
			must.Equal(t, w.counted("seven", 5), "3 done, 2 dead, 0 dropped, 0 cancelled, finished false", "five have ended")
			op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: w.redis, Buckets: w.buckets}))(t)
			must.Get(w.client.Cancel(t.Context(), "b", "cancelled"))(t)
			must.Equal(t, w.counted("seven", 6), "3 done, 2 dead, 0 dropped, 1 cancelled, finished false", "six have ended")
			control := op.As("tester").Bucket("b")
			must.Get(control.Purge(t.Context(), operator.PurgeOptions{}))(t)
			w.counted("seven", 7)
			w.open(shaper.Bundle{ID: "seven", Size: 7})
			must.Equal(t, w.counted("seven", 7), "3 done, 2 dead, 0 dropped, 2 cancelled, finished true", "all have ended")
			heard := map[string]int{}
			for range 2 {
				a, body := w.next()
				heard[fmt.Sprint(a.URL, " ", body["type"])]++
				if body["type"] == "bundle.finished" {
					data, _ := body["data"].(map[string]any)
					if got := fmt.Sprint(data["id"], data["bucket"], data["size"], data["ended"], data["done"], data["dead"], data["dropped"], data["cancelled"]); got != "sevenb7 7 3 2 0 2" && got != "sevenb 7 7 3 2 0 2" {
						t.Errorf("told is %s", got)
					}
				}
			}
			if heard["https://a.example/finished bundle.finished"] != 1 || heard["https://a.example/one job.done"] != 1 {
				t.Errorf("heard %v", heard)
			}
			// Redriven, the dead one dies again, and counts once.
			must.Get(control.Dead().Redrive(t.Context(), "dead"))(t)
			w.enqueue(shaper.Job{ID: "after", Flow: jobs[0].Flow, Group: jobs[0].Group, Payload: []byte("hi"), CallbackURL: "https://a.example/after"})
			if a, _ := w.next(); a.URL != "https://a.example/after" {
				t.Errorf("heard %s once more", a.URL)
			}
			must.Equal(t, w.counted("seven", 7), "3 done, 2 dead, 0 dropped, 2 cancelled, finished true", "after a redrive")
		})
	}
}

// A bucket without callbacks has bundles too, and its dispatcher needs nothing to enqueue with.
func TestBundleWithoutCallbacks(t *testing.T) {
	t.Parallel()
	w := newTelling(t, func(b, _ *shaper.Bucket) { b.Callbacks = shaper.Callbacks{} })
	w.d.cfg.Enqueue = nil
	w.run()
	w.open(shaper.Bundle{ID: "two", Size: 2})
	w.enqueue(shaper.Job{Bundle: "two", Payload: []byte("hi")}, shaper.Job{ID: "later", Bundle: "two", Payload: []byte("hi"), Delay: time.Hour})
	if got := w.counted("two", 1); got != "1 done, 0 dead, 0 dropped, 0 cancelled, finished false" {
		t.Error(got)
	}
	if _, err := w.client.Cancel(t.Context(), "b", "later"); err != nil { // no dispatcher hears of it but by its patrol
		t.Fatal(err)
	}
	if got := w.counted("two", 2); got != "1 done, 0 dead, 0 dropped, 1 cancelled, finished true" {
		t.Error(got)
	}
	if _, err := w.client.OpenBundle(t.Context(), "b", shaper.Bundle{ID: "x", CallbackURL: "https://a.example/"}); err == nil {
		t.Error("a bucket without callbacks took a callback URL")
	}
}

// A job is in a bundle of its own caller only, which is open.
func TestBundleOwners(t *testing.T) {
	t.Parallel()
	w := newTelling(t, nil)
	w.open(shaper.Bundle{ID: "mine", Caller: "me"})
	w.open(shaper.Bundle{ID: "of-no-caller"})
	jobs := []shaper.Job{
		{Bucket: "b", ID: "in", Bundle: "mine", Caller: "me", Payload: []byte("x")},
		{Bucket: "b", ID: "anothers", Bundle: "mine", Caller: "you", Payload: []byte("x")},
		{Bucket: "b", ID: "nobodys", Bundle: "mine", Payload: []byte("x")},
		{Bucket: "b", ID: "unknown", Bundle: "not-open", Payload: []byte("x")},
		{Bucket: "b", ID: "of-none", Payload: []byte("x")},
		{Bucket: "told", ID: "elsewhere", Bundle: "mine", Caller: "me", Payload: []byte("x"), URL: "https://a.example/"},
		{Bucket: "b", ID: "in-too", Bundle: "of-no-caller", Payload: []byte("x")},
	}
	for _, some := range [][]shaper.Job{jobs, jobs[1:4], jobs[3:4]} {
		receipts := must.Get(w.client.Enqueue(t.Context(), some...))(t)
		for i, r := range receipts {
			wantsIn := some[i].ID == "in" || some[i].ID == "in-too" || some[i].ID == "of-none"
			if (r.Refusal == nil) != wantsIn || r.ID != some[i].ID || r.Refusal != nil && r.Refusal.Reason != shaper.ReasonUnknownBundle {
				t.Errorf("%s: %+v", some[i].ID, r)
			}
		}
	}
	if _, err := w.client.OpenBundle(t.Context(), "b", shaper.Bundle{ID: "mine", Size: 1}); !errors.Is(err, shaper.ErrBundleTaken) {
		t.Errorf("another's bundle: %v", err)
	}
	for _, job := range []shaper.Job{{Bundle: "not valid"}, {Bundle: "mine", Once: true}} {
		job.Bucket = "b"
		_, err := w.client.Enqueue(t.Context(), job)
		if fault, ok := errors.AsType[*shaper.FieldError](err); !ok || fault.Field != "bundle" {
			t.Errorf("%+v: %v", job, err)
		}
	}
}

// Whatever reply is lost, and wherever a dispatcher dies, each job counts once.
func TestBundlesAndLostReplies(t *testing.T) {
	t.Parallel()
	w := newTelling(t, nil)
	w.open(shaper.Bundle{ID: "many", Size: 300, CallbackURL: "https://a.example/finished"})
	k, ctx := store.BucketKeys("b"), t.Context()
	for i := range 300 {
		url, mark := "", "." // two thirds are only counted
		if i%3 == 0 {
			url, mark = `"cu":"https://a.example/one",`, ""
		}
		name := fmt.Sprintf("%d 1 j%d", 1783228800000000+i, i)
		text := fmt.Sprintf("0 1783228800000000 AAAAAAAAAAAcn001~=%s&^ {%s\"b\":\"many\"}\n{\"state\":\"done\",\"attempts\":1,\"status\":200}\n", mark, url)
		must.OK(t, errors.Join(w.redis.HSet(ctx, k.CallbackTexts(), name, text).Err(), w.redis.ZAdd(ctx, k.Callbacks(), redis.Z{Member: name, Score: float64(i)}).Err()))
	}
	for range 200 {
		d := w.bucketLoop() // another dispatcher each time
		if rand.N(3) == 0 {
			d.callbacks.enqueue = func(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error) {
				if _, err := w.client.Enqueue(ctx, jobs...); err != nil {
					return nil, err
				}
				return nil, errors.New("the reply was lost")
			}
		}
		page := must.Get(d.callbacks.take(ctx, 1+rand.N(20), nil))(t)
		said, _ := d.callbacks.enqueueJobs(ctx, page)
		for range rand.N(3) { // it dies before it takes them out, or the reply of that is lost
			must.Get(d.callbacks.take(ctx, 0, said))(t)
		}
		for _, z := range w.redis.ZRangeWithScores(ctx, k.Callbacks(), 0, -1).Val() { // 5 s later
			w.redis.ZAdd(ctx, k.Callbacks(), redis.Z{Member: z.Member, Score: 1})
		}
	}
	w.bucketLoop().callbacks.moveAll(ctx)
	w.bucketLoop().callbacks.moveAll(ctx)
	if got := w.counted("many", 300) + " " + w.counts(); got != "300 done, 0 dead, 0 dropped, 0 cancelled, finished true 0 0 101" {
		t.Error(got)
	}
}

// A process whose configuration has no callbacks counts jobs of bundles, and leaves what is to be told to others.
func TestCallbacksOfAnotherConfiguration(t *testing.T) {
	t.Parallel()
	w := newTelling(t, nil)
	w.write(3)
	plain := []shaper.Bucket{rig.Bucket("b", 1000)}
	client := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: w.redis, Buckets: plain}))(t)
	t.Cleanup(client.Close)
	other := must.Get(New(Config{Redis: w.redis, Buckets: plain, Workers: rig.Workers(plain, shaper.WorkerFunc(obey))}))(t)
	mover := newBucketLoop(other, other.store.Known("b"), t.Context()).callbacks
	w.open(shaper.Bundle{ID: "one", Size: 2})
	k := store.BucketKeys("b")
	told := `{"cu":"https://a.example/","b":"one"}` // of a job of a bundle that has a callback too
	for name, line := range map[string]string{"1783228800000007 1 c": `~=.&^ {"b":"one"}`, "1783228800000008 1 d": "~=&^ " + told} {
		text := "0 1783228800000000 AAAAAAAAAAAcn001" + line + "\n{\"state\":\"done\",\"attempts\":1,\"status\":200}\n"
		must.OK(t, errors.Join(w.redis.HSet(t.Context(), k.CallbackTexts(), name, text).Err(), w.redis.ZAdd(t.Context(), k.Callbacks(), redis.Z{Member: name, Score: 9}).Err()))
	}
	if pause := mover.moveAll(t.Context()); pause != 0 || w.counts() != "4 4 0" {
		t.Errorf("pause %s, %s", pause, w.counts())
	}
	if got := w.counted("one", 1); got != "1 done, 0 dead, 0 dropped, 0 cancelled, finished false" {
		t.Error(got)
	}
	for _, z := range w.redis.ZRangeWithScores(t.Context(), k.Callbacks(), 0, -1).Val() { // 5 s later
		w.redis.ZAdd(t.Context(), k.Callbacks(), redis.Z{Member: z.Member, Score: 1})
	}
	w.bucketLoop().callbacks.moveAll(t.Context())
	if got := w.counted("one", 2); w.counts() != "0 0 4" || got != "2 done, 0 dead, 0 dropped, 0 cancelled, finished true" {
		t.Errorf("moved on by the other one: %s; %s", w.counts(), got)
	}
}
