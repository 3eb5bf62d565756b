package asynq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/workers/asynq"
)

func newProxy(t *testing.T, target string) *faultproxy.Proxy {
	t.Helper()
	proxy := must.Get(faultproxy.New(target))(t)
	t.Cleanup(func() { proxy.Close() })
	return proxy
}

// deadline is the end of a job's lease, by the clock of Redis.
func (w *world) deadline(id string) time.Time { return w.job(id).Deadline }

// TestTasksWaitForThreeLeases has no asynq server at first: tasks wait in asynq for three leases, and occupy max_in_flight.
func TestTasksWaitForThreeLeases(t *testing.T) {
	t.Parallel()
	const jobs, outThere = 20, 5
	w := newWorld(t, func(b *shaper.Bucket, _ *asynq.Config) { b.MaxInFlight = outThere })
	w.dispatch()
	for i := range jobs {
		w.enqueue(shaper.Job{Bucket: bucket, ID: fmt.Sprint("j", i)})
	}
	w.await("asynq has as many tasks as may be out there", func() bool { return w.queueHolds(hibiken.TaskStatePending) == outThere })
	first := w.deadline("j0")
	w.await("three leases have passed", func() bool {
		must.Be(t, w.queueHolds(hibiken.TaskStatePending), outThere, "asynq has tasks")
		return w.deadline("j0").After(first.Add(3 * lease))
	})
	var ran runs
	w.serve(func(_ context.Context, task *hibiken.Task) error { ran.note(task); return nil }, asynq.Middleware(w.leases))
	for i := range jobs {
		id := fmt.Sprint("j", i)
		w.awaitState(id, shaper.StateDone)
		must.Equal(t, ran.of(id), 1, "job %s ran times", id)
	}
	w.wantNoTrace()
}

// TestDispatcherDiesAfterHandover cuts dispatchers off from Redis while their task waits in asynq, more often than a job may crash.
func TestDispatcherDiesAfterHandover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	direct := w.redis
	options := direct.(*redis.Client).Options()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	for round := 1; round <= shaper.MaxCrashes+1; round++ {
		proxy := newProxy(t, options.Addr)
		w.redis = connect(t, "redis://"+proxy.Addr())
		stop := w.dispatch()
		w.await(fmt.Sprintf("asynq has task %d", round), func() bool { return w.queueHolds(hibiken.TaskStatePending) == round })
		proxy.Close() // from here on the dispatcher is dead to the others
		defer stop()
		w.redis = direct
	}
	w.dispatch()
	w.await("the last task is there", func() bool { return w.queueHolds(hibiken.TaskStatePending) == shaper.MaxCrashes+2 })
	if info := w.job("a"); info.Crashes != 0 || info.Attempts != 0 {
		t.Errorf("the job has %d crashes and %d attempts, and never started", info.Crashes, info.Attempts)
	}
	var ran runs
	w.serve(func(_ context.Context, task *hibiken.Task) error { ran.note(task); return nil }, asynq.Middleware(w.leases))
	w.awaitState("a", shaper.StateDone)
	w.wantNoTrace()
	must.Equal(t, ran.of("a"), 1, "the job ran times: tasks of old epochs are to be revoked")
}

// TestLostReplyOfHandover loses the reply to the hand-over, with each way to settle.
func TestLostReplyOfHandover(t *testing.T) {
	t.Parallel()
	for _, settle := range asynq.Settles() {
		t.Run(string(settle), func(t *testing.T) {
			t.Parallel()
			var proxy *faultproxy.Proxy
			w := newWorld(t, func(_ *shaper.Bucket, c *asynq.Config) {
				c.Settle = settle
				proxy = newProxy(t, c.Redis.(*redis.Client).Options().Addr)
				c.Redis = connect(t, "redis://"+proxy.Addr())
			})
			lost := proxy.DropReply("asynq:{default}:t:a.")
			w.dispatch()
			w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
			<-lost
			w.await("the hand-over is known", func() bool {
				return settle == asynq.SettleHandler && w.queueHolds(hibiken.TaskStatePending) == 1 || w.job("a").State == shaper.StateDone
			})
			var ran runs
			w.serve(func(_ context.Context, task *hibiken.Task) error {
				must.Equal(t, task.Headers()[asynq.HeaderAttempt], "1", "delivery runs: the job was held, and the hand-over only had to be repeated")
				ran.note(task)
				return nil
			}, asynq.Middleware(w.leases))
			w.awaitState("a", shaper.StateDone)
			w.await("the handler has run", func() bool { return ran.of("a") > 0 })
			w.wantNoTrace()
			must.Equal(t, ran.of("a"), 1, "the job ran times")
		})
	}
}

// TestHandoverIsRemembered loses the reply to a hand-over, and the task has ended before the job is handed over again.
func TestHandoverIsRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *shaper.Bucket, c *asynq.Config) { c.Settle = asynq.SettleHandover })
	worker := must.Get(asynq.New(w.config))(t)
	var ran runs
	w.serve(func(_ context.Context, task *hibiken.Task) error { ran.note(task); return nil })
	enqueued := time.Now()
	for round := range 2 {
		attempt := shaper.NewAttempt(time.Now(), time.Minute, nil)
		attempt.ID, attempt.Bucket, attempt.Epoch, attempt.Enqueued = "a", bucket, int64(round+1), enqueued
		if outcome := worker.Deliver(t.Context(), attempt); outcome.Result != shaper.ResultDone {
			t.Fatalf("round %d: %+v", round, outcome)
		}
		w.await("the task has ended", func() bool {
			return w.queueHolds(hibiken.TaskStateCompleted) == 1 && w.queueHolds(hibiken.TaskStatePending) == 0
		})
	}
	must.Equal(t, ran.of("a"), 1, "the job ran times")
}

// TestRedisOfAsynqAway has a Redis of its own for asynq, which is away when the job departs. No attempt is spent.
func TestRedisOfAsynqAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	w := newWorld(t, func(b *shaper.Bucket, c *asynq.Config) {
		c.Redis = connect(t, server.URL())
		b.Retry.MaxAttempts = 1
	})
	server.Kill()
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	w.await("the job is held twice", func() bool {
		info := w.job("a")
		return info.Lost >= 2 && info.Last.Reason == asynq.ReasonUnavailable
	})
	must.OK(t, server.Restart())
	w.serve(func(context.Context, *hibiken.Task) error { return nil }, asynq.Middleware(w.leases))
	w.awaitState("a", shaper.StateDone)
}

// TestStartIsGivenUp loses the replies to the start of a job until the task's time is over. Nobody knows whether the job has started, and nobody runs
// it: it is returned at once, and counts no crash.
func TestStartIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := newProxy(t, w.redis.(*redis.Client).Options().Addr)
	leases := must.Get(dispatcher.NewLeases(dispatcher.LeasesConfig{Redis: connect(t, "redis://"+proxy.Addr()), Logger: w.logger()}))(t)
	t.Cleanup(leases.Close)
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	var tasks []*hibiken.TaskInfo
	w.await("the task is there", func() bool {
		tasks, _ = w.inspector.ListPendingTasks(queue)
		return len(tasks) == 1
	})
	ticket := tasks[0].Headers[asynq.HeaderLease]
	// The server does not have the script yet: the first reply would say so.
	if _, err := leases.Start(t.Context(), strings.Replace(ticket, `"claim":"`, `"claim":"another`, 1)); !errors.Is(err, dispatcher.ErrNotStarted) {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	lost := proxy.DropReply(lua.Start.SHA() + "\r\n")
	for range 20 { // no later try gets its reply either
		proxy.DropReply(lua.Start.SHA() + "\r\n")
	}
	ended := make(chan error)
	go func() {
		_, err := leases.Start(ctx, ticket)
		ended <- err
	}()
	<-lost
	giveUp()
	if err := <-ended; err == nil || errors.Is(err, dispatcher.ErrNotStarted) {
		t.Errorf("the start ended with %v, want that Redis does not answer", err)
	}
	w.await("the job is handed over again", func() bool { return w.queueHolds(hibiken.TaskStatePending) == 2 })
	if info := w.job("a"); info.Crashes+info.Lost > 0 {
		t.Errorf("the job never ran, and %d crashes and %d lost leases are counted", info.Crashes, info.Lost)
	}
	var ran runs
	w.serve(func(_ context.Context, task *hibiken.Task) error { ran.note(task); return nil }, asynq.Middleware(w.leases))
	w.awaitState("a", shaper.StateDone)
	must.Equal(t, ran.of("a"), 1, "the job ran times")
	if strings.Contains(w.log.String(), "leases were lost") {
		t.Error("the log says that leases were lost")
	}
}

// TestLeaseIsLostInAHandler has the lease of a running handler taken back: its context ends, and its outcome does not count.
func TestLeaseIsLostInAHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var first atomic.Bool
	started, causes := make(chan struct{}), make(chan error, 1)
	w.serve(func(ctx context.Context, _ *hibiken.Task) error {
		if first.CompareAndSwap(false, true) {
			close(started)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return fmt.Errorf("cut off: %w", hibiken.SkipRetry) // would be a dead letter
		}
		return nil
	}, asynq.Middleware(w.leases))
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	<-started
	// A heartbeat may put it back before the sweeper looks.
	w.await("the lease is taken back", func() bool {
		w.redis.ZAdd(t.Context(), stored.Key(bucket, "leases"), redis.Z{Member: "a", Score: 1})
		return w.job("a").State != shaper.StateInFlight || w.job("a").Lost > 0
	})
	if cause := <-causes; cause == nil {
		t.Error("the context of the handler ended without a cause")
	}
	w.awaitState("a", shaper.StateDone)
	w.wantNoTrace()
}

// TestIDOfAnEarlierTask has the id of a task taken by one of an earlier job, which asynq retains.
func TestIDOfAnEarlierTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := hibiken.NewClientFromRedisClient(w.config.Redis)
	old := hibiken.NewTaskWithHeaders("other", nil, map[string]string{asynq.HeaderLease: "old"})
	must.Get(client.Enqueue(old, hibiken.TaskID("a.1"), hibiken.Queue(queue), hibiken.ProcessIn(time.Hour)))(t)
	var ran runs
	w.serve(func(_ context.Context, task *hibiken.Task) error { ran.note(task); return nil }, asynq.Middleware(w.leases))
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	w.awaitState("a", shaper.StateDone)
	must.Equal(t, ran.of("a"), 1, "the job ran times")
}

// TestStopBeforeTheStart stops the dispatcher for good while its task waits, and another one takes over.
func TestStopBeforeTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	stop := w.dispatch()
	w.await("asynq has the task", func() bool { return w.queueHolds(hibiken.TaskStatePending) == 1 })
	stop()
	var ran runs
	w.serve(func(_ context.Context, task *hibiken.Task) error { ran.note(task); return nil }, asynq.Middleware(w.leases))
	w.awaitState("a", shaper.StateDone) // its lease still runs: the handler starts it, with no dispatcher at all
	must.Equal(t, ran.of("a"), 1, "the job ran times")
}
