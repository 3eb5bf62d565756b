package shaper

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
)

func (w *world) info() BucketInfo {
	w.t.Helper()
	infos, err := w.client.op.BucketInfos(context.WithoutCancel(w.t.Context()), w.bucket.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	return infos[0]
}

func (w *world) job(id string) JobInfo {
	w.t.Helper()
	info, err := w.client.Job(context.WithoutCancel(w.t.Context()), w.bucket.Name, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

func (w *world) submit(id string) {
	w.t.Helper()
	receipts, err := w.client.Enqueue(w.t.Context(), Job{Bucket: w.bucket.Name, ID: id, Payload: []byte("x")})
	if err != nil || receipts[0].Refusal != nil {
		w.t.Fatalf("enqueue %s: %+v, %v", id, receipts, err)
	}
}

// world is a bucket on a real server behind a proxy, with what came in and out.
type world struct {
	t       *testing.T
	server  *redistest.Server
	proxy   *faultproxy.Proxy
	bucket  Bucket
	client  *actors
	history checker.History

	mu        sync.Mutex
	delivered map[string]int
	news      chan struct{}
}

func newWorld(t *testing.T, b Bucket) *world {
	t.Helper()
	w := &world{t: t, server: redistest.Start(t), bucket: b, delivered: map[string]int{}, news: make(chan struct{}, 10_000)}
	proxy, err := faultproxy.New(w.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	w.proxy = proxy
	if w.client, err = newActors(ClientConfig{Redis: connect(t, proxy.Addr()), Buckets: []Bucket{b}}); err != nil {
		t.Fatal(err)
	}
	return w
}

// note records a delivery and answers as the downstream that took it.
func (w *world) note(_ context.Context, a *Attempt) Outcome {
	w.history.Delivered(a.ID, a.Number, time.Now())
	w.mu.Lock()
	w.delivered[a.ID]++
	w.mu.Unlock()
	w.news <- struct{}{}
	return Done(200)
}

func (w *world) enqueue(n int) {
	w.t.Helper()
	for i := range n {
		receipts, err := w.client.Enqueue(w.t.Context(), Job{Bucket: w.bucket.Name, Payload: []byte(strconv.Itoa(i))})
		if err != nil || receipts[0].Refusal != nil {
			w.t.Fatalf("enqueue: %+v, %v", receipts, err)
		}
		w.history.Admitted(receipts[0].ID, time.Now())
	}
}

func (w *world) await(n int) {
	w.t.Helper()
	late := time.After(time.Minute)
	for range n {
		select {
		case <-w.news:
		case <-late:
			w.t.Fatalf("waited too long; so far %s", w.history.Check())
		}
	}
}

// wantClean fails unless every job came exactly once and nothing is left.
func (w *world) wantClean() {
	w.t.Helper()
	result := w.history.Check()
	if err := result.Err(); err != nil || result.Extra != 0 {
		w.t.Errorf("%v: %s", err, result)
	}
	infos, err := w.client.op.BucketInfos(context.WithoutCancel(w.t.Context()))
	if err != nil || infos[0].Unfinished != 0 || infos[0].InFlight != 0 || infos[0].Waiting != 0 {
		w.t.Errorf("bucket %+v, %v", infos, err)
	}
}

func (w *world) submitTo(flow string, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		receipts, err := w.client.Enqueue(w.t.Context(), Job{Bucket: "b", ID: id, Flow: flow, Payload: []byte("x")})
		if err != nil || receipts[0].Refusal != nil {
			w.t.Fatalf("enqueue %s: %+v, %v", id, receipts, err)
		}
	}
}

// awaitDead waits until so many jobs are dead.
func (w *world) awaitDead(n int) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		dead, err := w.client.op.DeadLetters(w.t.Context(), "b", 0, n)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(dead) == n {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("dead letters: %+v", dead)
		}
	}
}

// awaitEmpty waits until all outcomes are written, and nothing is kept of any flow or group.
func (w *world) awaitEmpty() {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for k := bucketKeys("b"); ; {
		infos, err := w.client.op.BucketInfos(w.t.Context(), "b")
		if err != nil {
			w.t.Fatal(err)
		}
		left := w.server.Client().Exists(w.t.Context(), k.flows(), k.groups(), k.dueGroups(), k.dueOfGroup("big")).Val()
		if infos[0].Unfinished == 0 && left == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("left: %+v, %d keys", infos[0], left)
		}
	}
}

// poolWorld is buckets of one pool on a real server.
type poolWorld struct {
	*testing.T
	server  *redistest.Server
	buckets []Bucket
	client  *actors
}

func newPoolWorld(t *testing.T, buckets ...Bucket) *poolWorld {
	t.Helper()
	w := &poolWorld{T: t, server: redistest.Start(t), buckets: buckets}
	w.client = w.clientOf(buckets...)
	return w
}

func (w *poolWorld) clientOf(buckets ...Bucket) *actors {
	w.Helper()
	client, err := newActors(ClientConfig{Redis: connect(w.T, w.server.Addr()), Buckets: buckets})
	if err != nil {
		w.Fatal(err)
	}
	return client
}

func (w *poolWorld) enqueue(bucket string, n int, change func(*Job)) {
	w.Helper()
	for i := range n {
		job := Job{Bucket: bucket, ID: bucket + strconv.Itoa(i), Payload: []byte("x")}
		if change != nil {
			change(&job)
		}
		receipts, err := w.client.Enqueue(w.Context(), job)
		if err != nil || receipts[0].Refusal != nil {
			w.Fatalf("enqueue: %+v, %v", receipts, err)
		}
	}
}
