package rig

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

func (w *World) Info() operator.BucketInfo {
	w.T.Helper()
	infos := must.Get(w.Client.Op.BucketInfos(context.WithoutCancel(w.T.Context()), w.Bucket.Name))(w.T)
	return infos[0]
}

func (w *World) Job(id string) shaper.JobInfo {
	w.T.Helper()
	info := must.Get(w.Client.Job(context.WithoutCancel(w.T.Context()), w.Bucket.Name, id))(w.T)
	return info
}

func (w *World) Submit(id string) {
	w.T.Helper()
	receipts, err := w.Client.Enqueue(w.T.Context(), shaper.Job{Bucket: w.Bucket.Name, ID: id, Payload: []byte("x")})
	if err != nil || receipts[0].Refusal != nil {
		w.T.Fatalf("enqueue %s: %+v, %v", id, receipts, err)
	}
}

// World is a bucket on a real server behind a proxy, with a record of enqueued and delivered jobs.
type World struct {
	T       *testing.T
	Server  *redistest.Server
	Proxy   *faultproxy.Proxy
	Bucket  shaper.Bucket
	Client  *Actors
	History checker.History

	mu        sync.Mutex
	Delivered map[string]int
	news      chan struct{}
}

func NewWorld(t *testing.T, b shaper.Bucket) *World {
	t.Helper()
	w := &World{T: t, Server: redistest.Start(t), Bucket: b, Delivered: map[string]int{}, news: make(chan struct{}, 10_000)}
	proxy, err := faultproxy.New(w.Server.Addr())
	must.OK(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	w.Proxy = proxy
	if w.Client, err = NewActors(producer.Config{Redis: Connect(t, proxy.Addr()), Buckets: []shaper.Bucket{b}}); err != nil {
		t.Fatal(err)
	}
	return w
}

// Note records a delivery and responds like a downstream that accepted it.
func (w *World) Note(_ context.Context, a *shaper.Attempt) shaper.Outcome {
	w.History.Delivered(a.ID, a.Number, time.Now())
	w.mu.Lock()
	w.Delivered[a.ID]++
	w.mu.Unlock()
	w.news <- struct{}{}
	return shaper.Done(200)
}

// Sent returns how often each job was delivered so far.
func (w *World) Sent() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.Delivered)
}

// News lets Await see a delivery that is not noted.
func (w *World) News() { w.news <- struct{}{} }

func (w *World) Enqueue(n int) {
	w.T.Helper()
	for i := range n {
		receipts, err := w.Client.Enqueue(w.T.Context(), shaper.Job{Bucket: w.Bucket.Name, Payload: []byte(strconv.Itoa(i))})
		if err != nil || receipts[0].Refusal != nil {
			w.T.Fatalf("enqueue: %+v, %v", receipts, err)
		}
		w.History.Admitted(receipts[0].ID, time.Now())
	}
}

func (w *World) Await(n int) {
	w.T.Helper()
	late := time.After(time.Minute)
	for range n {
		select {
		case <-w.news:
		case <-late:
			w.T.Fatalf("waited too long; so far %s", w.History.Check())
		}
	}
}

// WantClean fails unless every job was delivered exactly once and nothing is left.
func (w *World) WantClean() {
	w.T.Helper()
	result := w.History.Check()
	if err := result.Err(); err != nil || result.Extra != 0 {
		w.T.Errorf("%v: %s", err, result)
	}
	infos, err := w.Client.Op.BucketInfos(context.WithoutCancel(w.T.Context()))
	if err != nil || infos[0].Unfinished != 0 || infos[0].InFlight != 0 || infos[0].Waiting != 0 {
		w.T.Errorf("bucket %+v, %v", infos, err)
	}
}

func (w *World) SubmitTo(flow string, ids ...string) {
	w.T.Helper()
	for _, id := range ids {
		receipts, err := w.Client.Enqueue(w.T.Context(), shaper.Job{Bucket: "b", ID: id, Flow: flow, Payload: []byte("x")})
		if err != nil || receipts[0].Refusal != nil {
			w.T.Fatalf("enqueue %s: %+v, %v", id, receipts, err)
		}
	}
}

// AwaitDead waits until n jobs are dead.
func (w *World) AwaitDead(n int) {
	w.T.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		dead := must.Get(w.Client.Op.Bucket("b").Dead().List(w.T.Context(), 0, n))(w.T)
		if len(dead) == n {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			w.T.Fatalf("dead letters: %+v", dead)
		}
	}
}

// AwaitEmpty waits until all outcomes are written, and nothing is kept of any flow or group.
func (w *World) AwaitEmpty() {
	w.T.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for k := store.BucketKeys(w.Bucket.Name); ; {
		infos := must.Get(w.Client.Op.BucketInfos(w.T.Context(), w.Bucket.Name))(w.T)
		left := w.Server.Client().Exists(w.T.Context(), k.Flows(), k.Groups(), k.DueGroups(), k.DueOfGroup("big")).Val()
		if infos[0].Unfinished == 0 && left == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			w.T.Fatalf("left: %+v, %d keys", infos[0], left)
		}
	}
}

// PoolWorld is buckets of one pool on a real server.
type PoolWorld struct {
	*testing.T
	Server  *redistest.Server
	Buckets []shaper.Bucket
	Client  *Actors
}

func NewPoolWorld(t *testing.T, buckets ...shaper.Bucket) *PoolWorld {
	t.Helper()
	w := &PoolWorld{T: t, Server: redistest.Start(t), Buckets: buckets}
	w.Client = w.ClientOf(buckets...)
	return w
}

func (w *PoolWorld) ClientOf(buckets ...shaper.Bucket) *Actors {
	w.Helper()
	client := must.Get(NewActors(producer.Config{Redis: Connect(w.T, w.Server.Addr()), Buckets: buckets}))(w)
	return client
}

func (w *PoolWorld) Enqueue(bucket string, n int, change func(*shaper.Job)) {
	w.Helper()
	for i := range n {
		job := shaper.Job{Bucket: bucket, ID: bucket + strconv.Itoa(i), Payload: []byte("x")}
		if change != nil {
			change(&job)
		}
		receipts, err := w.Client.Enqueue(w.Context(), job)
		if err != nil || receipts[0].Refusal != nil {
			w.Fatalf("enqueue: %+v, %v", receipts, err)
		}
	}
}
