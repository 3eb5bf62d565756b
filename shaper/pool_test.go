package shaper

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
)

// Two buckets and two dispatchers: all slots together obey the rate of the pool, no more are in flight than may be,
// and who is of more weight has more.
func TestPoolOverTwoDispatchers(t *testing.T) {
	t.Parallel()
	const rate, burst, most, jobs = 200, 3, 30, 150
	// Of a pool with a quota Redis keeps all slots.
	pool := Pool{Name: "vendor", Rate: perSecond(rate), Burst: burst, MaxInFlight: most, Quotas: []admission.Rate{{Count: 5000, Per: time.Hour, Unit: admission.UnitRequests}}}
	w := newPoolWorld(t, pooled("a", 1000, 3, pool), pooled("b", 1000, 1, pool))
	w.enqueue("a", 3*jobs, nil)
	w.enqueue("b", jobs, nil)
	arrived := make(chan string, 4*jobs)
	var flying, highest atomic.Int64
	run(w, 2, WorkerFunc(func(_ context.Context, a *Attempt) Outcome {
		n := flying.Add(1)
		defer flying.Add(-1)
		for old := highest.Load(); n > old && !highest.CompareAndSwap(old, n); old = highest.Load() {
		}
		arrived <- a.Bucket
		return Done(200)
	}))
	ofA := 0
	for i := range 4 * jobs {
		if bucket := <-arrived; bucket == "a" && i < 2*jobs {
			ofA++
		}
	}
	if share := float64(ofA) / (2 * jobs); share < 0.6 || share > 0.9 {
		t.Errorf("%.0f %% of the first half are of the one with weight 3, want about 75 %%", 100*share)
	}
	if n := highest.Load(); n > most {
		t.Errorf("%d were in flight, at most %d may be", n, most)
	}
	texts, err := w.server.Client().LRange(t.Context(), poolPrefix("vendor")+"departed", 0, -1).Result()
	if err != nil || len(texts) < 4*jobs {
		t.Fatalf("%d slots are kept, %v", len(texts), err)
	}
	slots := make([]int64, len(texts))
	for i, text := range texts {
		if slots[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(slots)
	for i := burst; i < len(slots); i++ {
		for from := 0; from+burst <= i; from++ {
			if need := int64(i-from+1-burst) * time.Second.Microseconds() / rate; slots[i]-slots[from]+1 < need {
				t.Fatalf("%d slots in %d µs", i-from+1, slots[i]-slots[from])
			}
		}
	}
}

// A bucket whose pool has no place free is woken by one of another bucket that ends.
func TestPoolPlaceIsPassedOn(t *testing.T) {
	t.Parallel()
	pool := Pool{Name: "vendor", Rate: perSecond(1000), MaxInFlight: 1}
	w := newPoolWorld(t, pooled("a", 1000, 1, pool), pooled("b", 1000, 1, pool))
	worker := newWaiting()
	run(w, 2, worker)
	w.enqueue("a", 1, nil)
	<-worker.began
	w.enqueue("b", 1, nil)
	for w.server.Client().ZScore(t.Context(), poolPrefix("vendor")+"held", "b").Err() != nil { // until b has been told so
		runtime.Gosched()
	}
	info, err := w.client.Job(t.Context(), "b", "b0")
	if err != nil || !slices.Contains(info.Holds(), HoldPoolInFlight) || !strings.Contains(info.Why(), `1 of at most 1 of pool "vendor" are in flight`) {
		t.Errorf("%v: %q, %v", info.Holds(), info.Why(), err)
	}
	infos, err := w.client.op.BucketInfos(t.Context(), "b")
	if err != nil || infos[0].Pool == nil || infos[0].Pool.Name != "vendor" || infos[0].Pool.InFlight != 1 || infos[0].Pool.MaxInFlight != 1 ||
		infos[0].Pool.Rate != pool.Rate || infos[0].Pool.Burst != 1 || infos[0].Pool.Weight != 1 || infos[0].Pool.LastSlot.IsZero() {
		t.Errorf("b's pool: %+v, %v", infos, err)
	}
	select {
	case a := <-worker.began:
		t.Fatalf("%s is on its way, too", a.ID)
	default:
		worker.end <- Done(200)
	}
	if a := <-worker.began; a.ID != "b0" {
		t.Errorf("%s began", a.ID)
	}
	worker.end <- Done(200)
}

// Flows and groups of a bucket in a pool.
func TestPoolOfFlows(t *testing.T) {
	t.Parallel()
	pool := Pool{Name: "vendor", Rate: perSecond(500), MaxInFlight: 10}
	flowing, grouped := pooled("flowing", 1000, 1, pool), pooled("grouped", 1000, 2, pool)
	flow, group := DefaultFlowSettings(), DefaultGroupSettings()
	flow.Key, group.Key = FlowKeyJob, FlowKeyJob
	flowing.Flow, grouped.Flow, grouped.Group = &flow, &flow, &group
	w := newPoolWorld(t, flowing, grouped)
	for _, bucket := range []string{"flowing", "grouped"} {
		n := 0
		w.enqueue(bucket, 60, func(job *Job) {
			job.Flow = fmt.Sprint("f", n%7)
			if bucket == "grouped" {
				job.Group = fmt.Sprint("g", n%3)
			}
			n++
		})
	}
	arrived := make(chan struct{}, 200)
	run(w, 2, WorkerFunc(func(context.Context, *Attempt) Outcome { arrived <- struct{}{}; return Done(200) }))
	for range 120 {
		<-arrived
	}
}

// A bucket joins or leaves a pool only while it is empty, and takes with it what operators said.
func TestTagOfABucketThatJoinsAPool(t *testing.T) {
	t.Parallel()
	pool := Pool{Name: "vendor", Rate: perSecond(100)}
	own := testBucket("b", 100)
	own.DedupeWindow = 0
	w := newPoolWorld(t, own)
	if err := w.client.op.Control("anna").Pause(t.Context(), "b", "tests"); err != nil {
		t.Fatal(err)
	}
	w.enqueue("b", 1, nil)
	joined := w.clientOf(in(&pool, own))
	_, err := joined.Enqueue(t.Context(), Job{Bucket: "b", ID: "x", Payload: []byte("x")})
	if !errors.Is(err, ErrTagChanged) || !strings.Contains(err.Error(), `bucket "b" cannot join pool "vendor": it holds 1 job: let it drain`) {
		t.Fatalf("a bucket with jobs joined a pool: %v", err)
	}
	if state, err := w.client.Cancel(t.Context(), "b", "b0"); err != nil || state != StateCancelled {
		t.Fatal(state, err)
	}
	if receipts, err := joined.Enqueue(t.Context(), Job{Bucket: "b", ID: "x", Payload: []byte("x")}); err != nil || receipts[0].Refusal != nil {
		t.Fatalf("%+v, %v", receipts, err)
	}
	if tag := w.server.Client().HGet(t.Context(), tagsKey, "b").Val(); tag != "vendor" {
		t.Errorf("its tag is %q", tag)
	}
	if infos, err := joined.op.BucketInfos(t.Context()); err != nil || infos[0].Pause == nil || infos[0].Pause.By != "anna" || infos[0].Unfinished != 1 {
		t.Errorf("%+v, %v", infos, err)
	}
	// Who still has the old configuration is told, and puts no job where nobody looks.
	if _, err := w.client.Enqueue(t.Context(), Job{Bucket: "b", ID: "y", Payload: []byte("x")}); !errors.Is(err, ErrTagChanged) {
		t.Errorf("a process with the old configuration: %v", err)
	}
	if n := w.server.Client().Exists(t.Context(), bucketKeys("b").body()).Val(); n != 0 {
		t.Error("a job lies where nobody looks")
	}
	// Those that do not have it configured find it by its tag.
	stranger := w.clientOf()
	if was, err := stranger.op.Control("bert").Resume(t.Context(), "b"); err != nil || !was {
		t.Errorf("resumed: %t, %v", was, err)
	}
	if infos, err := stranger.op.BucketInfos(t.Context(), "b"); err != nil || infos[0].Unfinished != 1 || infos[0].Pool == nil {
		t.Errorf("%+v, %v", infos, err)
	}
	if sum, err := stranger.op.Control("bert").Purge(t.Context(), "b", PurgeOptions{}); err != nil || sum.Jobs != 1 {
		t.Errorf("purged %+v, %v", sum, err)
	}
	// It is empty, so it may leave.
	if receipts, err := w.clientOf(own).Enqueue(t.Context(), Job{Bucket: "b", ID: "z", Payload: []byte("x")}); err != nil || receipts[0].Refusal != nil {
		t.Errorf("it does not leave: %+v, %v", receipts, err)
	}
}

// All keys of a pool and of its buckets are in one slot of a cluster; each bucket is found there by its tag.
func TestPoolInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	conn, err := redisconn.Connect(c.URL(), redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	pool := Pool{Name: "vendor", Rate: perSecond(500), MaxInFlight: 5, Quotas: []admission.Rate{{Count: 5000, Per: time.Hour, Unit: admission.UnitRequests}}}
	flowing := pooled("b", 1000, 1, pool)
	flow := DefaultFlowSettings()
	flow.Key = FlowKeyJob
	flowing.Flow = &flow
	buckets := []Bucket{pooled("a", 1000, 1, pool), flowing}
	buckets[0].DedupeWindow, buckets[1].DedupeWindow = 0, 0
	client, err := newActors(ClientConfig{Redis: conn, Buckets: buckets})
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan string, 100)
	d, err := NewDispatcher(DispatcherConfig{Redis: conn, Buckets: buckets, Workers: map[string]Worker{
		"test": WorkerFunc(func(_ context.Context, a *Attempt) Outcome { arrived <- a.Bucket; return Done(200) }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) })
	defer running.Wait()
	defer stop()
	for i := range 40 {
		b := buckets[i%2].Name
		if receipts, err := client.Enqueue(t.Context(), Job{Bucket: b, Flow: "f", Payload: []byte("x")}); err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
	}
	got := map[string]int{}
	for range 40 {
		got[<-arrived]++
	}
	if got["a"] != 20 || got["b"] != 20 {
		t.Errorf("arrived %v", got)
	}
	stranger, err := newActors(ClientConfig{Redis: conn})
	if err != nil {
		t.Fatal(err)
	}
	if infos, err := stranger.op.BucketInfos(t.Context(), "a", "b"); err != nil || infos[0].Pool == nil || infos[1].Pool == nil {
		t.Errorf("%+v, %v", infos, err)
	}
	// Empty, each of them leaves the pool, to a slot of its own.
	stop()
	running.Wait()
	for i := range buckets {
		buckets[i].Pool = nil
	}
	left, err := newActors(ClientConfig{Redis: conn, Buckets: buckets})
	if err != nil {
		t.Fatal(err)
	}
	if err := left.JoinPools(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, b := range []string{"a", "b"} {
		receipts, err := left.Enqueue(t.Context(), Job{Bucket: b, ID: "last", Flow: "f", Payload: []byte("x")})
		if err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
		if n := conn.HLen(t.Context(), bucketKeys(b).body()).Val(); n != 1 {
			t.Errorf("bucket %q has %d jobs under its own tag", b, n)
		}
	}
	if pools, err := stranger.op.KnownPools(t.Context()); err != nil || len(pools) != 0 {
		t.Errorf("pools are %v, %v", pools, err)
	}
}
