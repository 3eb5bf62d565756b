package asynq_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/asynq"
)

const (
	bucket = "emails"
	queue  = "default"
	lease  = time.Second
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

// world is a bucket with the worker asynq, the queue, and what runs on both.
type world struct {
	t         *testing.T
	url       string                // of redis
	redis     redis.UniversalClient // of Tundish and, unless a test says otherwise, of asynq
	buckets   []shaper.Bucket
	config    asynq.Config
	producer  *producer.Client
	operator  *operator.Operator
	inspector *hibiken.Inspector
	leases    *dispatcher.Leases
	registry  *prometheus.Registry // of leases
	log       *lockedBuffer
	stops     []func()
}

func newWorld(t *testing.T, change ...func(*shaper.Bucket, *asynq.Config)) *world {
	t.Helper()
	w := &world{t: t, log: &lockedBuffer{}, registry: prometheus.NewRegistry()}
	w.url = redistest.Start(t).URL()
	w.redis = connect(t, w.url)
	b := shaper.DefaultBucket()
	b.Name = bucket
	b.Rate, _ = admission.ParseRate("500/s")
	b.Retry = shaper.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, KeepAttempts: 5}
	w.config = asynq.DefaultConfig()
	w.config.Queue, w.config.Task, w.config.Redis = queue, "email:send", w.redis
	for _, f := range change {
		f(&b, &w.config)
	}
	w.buckets = []shaper.Bucket{b}
	var err error
	if w.producer, err = producer.New(producer.Config{Redis: w.redis, Buckets: w.buckets}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.producer.Close)
	if w.operator, err = operator.New(operator.Config{Redis: w.redis, Buckets: w.buckets}); err != nil {
		t.Fatal(err)
	}
	if w.leases, err = dispatcher.NewLeases(dispatcher.LeasesConfig{Redis: w.redis, Logger: w.logger(), Registerer: w.registry}); err != nil {
		t.Fatal(err)
	}
	w.inspector = hibiken.NewInspectorFromRedisClient(w.config.Redis)
	t.Cleanup(func() {
		for i := len(w.stops) - 1; i >= 0; i-- {
			w.stops[i]()
		}
		w.leases.Close()
		if t.Failed() {
			t.Log(w.log)
		}
	})
	return w
}

func connect(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	conn := must.Get(redisconn.Connect(url, redisconn.Options{Timeout: 20 * time.Second}))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (w *world) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w.log, nil)) }

// dispatch runs a dispatcher until the returned function is called, or the test ends.
func (w *world) dispatch() (stop func()) {
	w.t.Helper()
	worker := must.Get(asynq.New(w.config))(w.t)
	return w.dispatchTo(worker)
}

func (w *world) dispatchTo(worker shaper.Worker) (stop func()) {
	w.t.Helper()
	d := must.Get(dispatcher.New(dispatcher.Config{
		Redis: w.redis, Buckets: w.buckets, Workers: map[string]shaper.Worker{bucket: worker}, Lease: lease, Logger: w.logger(),
	}))(w.t)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			w.t.Errorf("the dispatcher stopped with %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.stops = append(w.stops, stop)
	return stop
}

// serve runs an asynq server with the middleware, or without it.
func (w *world) serve(handler hibiken.HandlerFunc, middleware ...hibiken.MiddlewareFunc) (stop func()) {
	w.t.Helper()
	server := hibiken.NewServerFromRedisClient(w.config.Redis, hibiken.Config{
		Concurrency: 10, Queues: map[string]int{queue: 1}, TaskCheckInterval: 10 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
		ShutdownTimeout: time.Second, LogLevel: hibiken.FatalLevel,
		RetryDelayFunc: func(int, error, *hibiken.Task) time.Duration { return 10 * time.Millisecond },
	})
	mux := hibiken.NewServeMux()
	mux.Use(middleware...)
	mux.HandleFunc("email:", handler)
	must.OK(w.t, server.Start(mux))
	stop = sync.OnceFunc(server.Shutdown)
	w.stops = append(w.stops, stop)
	return stop
}

func (w *world) enqueue(jobs ...shaper.Job) {
	w.t.Helper()
	receipts := must.Get(w.producer.Enqueue(w.t.Context(), jobs...))(w.t)
	for _, r := range receipts {
		if r.Refusal != nil {
			w.t.Fatalf("job %q: %+v", r.ID, r.Refusal)
		}
	}
}

// job is what is known of a job. One that is not there any more has the state "".
func (w *world) job(id string) shaper.JobInfo {
	w.t.Helper()
	info, err := w.producer.Job(w.t.Context(), bucket, id)
	if err != nil && !errors.Is(err, shaper.ErrNotFound) {
		w.t.Fatal(err)
	}
	return info
}

func (w *world) awaitState(id string, state shaper.State) shaper.JobInfo {
	w.t.Helper()
	var info shaper.JobInfo
	w.await("job "+id+" is "+string(state), func() bool { info = w.job(id); return info.State == state })
	return info
}

// await polls until something is true. Its bound is no part of any promise.
func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// queueHolds are the tasks of the queue in a state.
func (w *world) queueHolds(state hibiken.TaskState) int {
	w.t.Helper()
	info, err := w.inspector.GetQueueInfo(queue)
	switch {
	case errors.Is(err, hibiken.ErrQueueNotFound):
		return 0
	case err != nil:
		if info == nil && bytes.Contains([]byte(err.Error()), []byte("NOT_FOUND")) {
			return 0
		}
		w.t.Fatal(err)
	}
	return map[hibiken.TaskState]int{
		hibiken.TaskStatePending: info.Pending, hibiken.TaskStateActive: info.Active, hibiken.TaskStateRetry: info.Retry,
		hibiken.TaskStateArchived: info.Archived, hibiken.TaskStateCompleted: info.Completed, hibiken.TaskStateScheduled: info.Scheduled,
	}[state]
}

// wantNoTrace wants that asynq neither retries nor keeps any task.
func (w *world) wantNoTrace() {
	w.t.Helper()
	w.await("the queue is empty", func() bool {
		return w.queueHolds(hibiken.TaskStatePending)+w.queueHolds(hibiken.TaskStateActive) == 0
	})
	for _, state := range []hibiken.TaskState{hibiken.TaskStateRetry, hibiken.TaskStateArchived, hibiken.TaskStateScheduled} {
		if n := w.queueHolds(state); n > 0 {
			w.t.Errorf("asynq has %d tasks in state %s", n, state)
		}
	}
}

// runs counts how often each job ran.
type runs struct {
	mu   sync.Mutex
	seen map[string]int
}

func (r *runs) note(task *hibiken.Task) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[string]int{}
	}
	id := task.Headers()[asynq.HeaderJob]
	r.seen[id]++
	return r.seen[id]
}

func (r *runs) of(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[id]
}

// lockedBuffer is a log of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
