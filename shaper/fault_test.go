package shaper

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
)

func testBucket(name string, rate int64) Bucket {
	b := DefaultBucket()
	b.Name, b.Worker = name, "test"
	b.Rate = admission.Rate{Count: rate, Per: time.Second, Unit: admission.UnitRequests}
	return b
}

func connect(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	client, err := redisconn.Connect("redis://"+addr, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
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

// dispatch runs a dispatcher; the function that it returns stops it.
func (w *world) dispatch(worker Worker, change func(*DispatcherConfig)) (stop func() error) {
	w.t.Helper()
	cancel, ended := w.start(worker, change)
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	w.t.Cleanup(func() { _ = stop() })
	return stop
}

func (w *world) start(worker Worker, change func(*DispatcherConfig)) (cancel context.CancelFunc, ended chan error) {
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

// A lost reply of any script: no job is lost and none is doubled.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for _, script := range []*lua.Script{lua.Enqueue, lua.Claim, lua.Settle, lua.Configure, lua.Extend} {
		t.Run(script.Name(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testBucket("b", 500))
			w.enqueue(1) // the scripts are known and the bucket is configured
			var dropped []<-chan struct{}
			drop := func(n int) {
				for range n {
					dropped = append(dropped, w.proxy.DropReply(script.SHA()))
				}
			}
			if script == lua.Enqueue {
				drop(2) // three tries in a call
			}
			if script == lua.Configure {
				drop(1) // by the dispatcher
			}
			stop := w.dispatch(WorkerFunc(w.note), func(cfg *DispatcherConfig) { cfg.Lease = time.Second })
			w.await(1)
			if script == lua.Claim || script == lua.Settle {
				drop(3)
			}
			w.enqueue(60)
			w.await(60)
			if script != lua.Extend {
				for _, done := range dropped {
					<-done
				}
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			w.wantClean()
		})
	}
}

// A batch of generated ids whose reply is lost is answered as admitted, not as
// duplicates, and is there once.
func TestLostReplyOfEnqueueIsNoDuplicate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 1))
	w.enqueue(1)
	lost := w.proxy.DropReply(lua.Enqueue.SHA())
	receipts, err := w.client.Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("x")}, Job{Bucket: "b", ID: "mine", Payload: []byte("x"), Delay: time.Hour})
	<-lost
	if err != nil || receipts[0].Duplicate || receipts[0].State != StateQueued || receipts[1].State != StateScheduled {
		t.Errorf("%+v, %v", receipts, err)
	}
	again, err := w.client.Enqueue(t.Context(), Job{Bucket: "b", ID: "mine", Payload: []byte("x"), Delay: time.Hour})
	if err != nil || !again[0].Duplicate {
		t.Errorf("%+v, %v", again, err)
	}
	infos, err := w.client.op.BucketInfos(t.Context())
	if err != nil || infos[0].Unfinished != 2 || infos[0].Scheduled != 1 {
		t.Errorf("%+v, %v", infos, err)
	}
}

// Frozen: an enqueue gives up within its timeout; when Redis is back the same
// ids are the same jobs.
func TestEnqueueWhileFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 1))
	w.enqueue(1)
	w.proxy.Freeze()
	began := time.Now()
	job := Job{Bucket: "b", ID: "x", Payload: []byte("x")}
	receipts, err := w.client.Enqueue(t.Context(), job)
	if err == nil || !redisconn.Unavailable(err) || time.Since(began) > time.Minute || receipts[0].ID != "x" {
		t.Errorf("after %s: %+v, %v", time.Since(began), receipts, err)
	}
	w.proxy.Thaw()
	receipts, err = w.client.Enqueue(t.Context(), job)
	if err != nil || receipts[0].Refusal != nil {
		t.Errorf("%+v, %v", receipts, err)
	}
	infos, err := w.client.op.BucketInfos(t.Context())
	if err != nil || infos[0].Unfinished != 2 {
		t.Errorf("%+v, %v", infos, err)
	}
}

// A server that is full takes no job but is drained, also by a dispatcher that
// has just started.
func TestDispatcherStartsOnAFullServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 500))
	w.enqueue(50)
	admin := w.server.Client()
	info, err := admin.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	var used int
	if _, err := fmt.Sscan(rest, &used); err != nil {
		t.Fatal(err)
	}
	if err := admin.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(used/2)).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = w.client.Enqueue(t.Context(), Job{Bucket: "b", Payload: []byte("x")})
	if err == nil || !redisconn.Unavailable(err) {
		t.Errorf("enqueue into a full server: %v", err)
	}
	stop := w.dispatch(WorkerFunc(w.note), nil)
	w.await(50)
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.wantClean()
}

// Scripts flushed and keys of a configuration gone: nobody sees an error.
func TestFlushedScriptsAndLostConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 500))
	stop := w.dispatch(WorkerFunc(w.note), nil)
	admin := w.server.Client()
	for range 5 {
		w.enqueue(10)
		if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if err := admin.Del(t.Context(), bucketKeys("b").conf()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	w.await(50)
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.wantClean()
}
