package asynq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/asynq"
)

// TestHandlerSettles runs what a handler may return through an asynq server, and looks at what becomes of the job and of the task.
func TestHandlerSettles(t *testing.T) {
	t.Parallel()
	busy := errors.New("busy")
	for _, test := range []struct {
		name   string
		runs   []error // what the handler returns, run by run; an error with the text "panic" is thrown
		state  shaper.State
		reason string // of a dead letter
		cause  string
	}{
		{"nil", []error{nil}, shaper.StateDone, "", ""},
		{"an error, then nil", []error{busy, nil}, shaper.StateDone, "", ""},
		{"errors until the last attempt", []error{busy, busy, busy}, shaper.StateDead, asynq.ReasonHandler, shaper.CauseExhausted},
		{"a panic, then nil", []error{errors.New("panic"), nil}, shaper.StateDone, "", ""},
		{"SkipRetry", []error{fmt.Errorf("no such user: %w", hibiken.SkipRetry)}, shaper.StateDead, asynq.ReasonSkipRetry, shaper.CausePermanent},
		{"RevokeTask", []error{fmt.Errorf("not needed: %w", hibiken.RevokeTask)}, shaper.StateDropped, "", ""},
		{"holds spend no attempt", []error{
			asynq.Hold(time.Millisecond, busy), asynq.Hold(time.Millisecond, busy), asynq.Hold(time.Millisecond, busy), asynq.Hold(time.Millisecond, busy), nil,
		}, shaper.StateDone, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(b *shaper.Bucket, _ *asynq.Config) { b.Adapt.Floor = 100 })
			var ran runs
			w.serve(func(_ context.Context, task *hibiken.Task) error {
				n := ran.note(task)
				if n > len(test.runs) {
					return errors.New("one run too many")
				}
				err := test.runs[n-1]
				if err != nil && err.Error() == "panic" {
					panic("a bug")
				}
				return err
			}, asynq.Middleware(w.leases))
			w.dispatch()
			w.enqueue(shaper.Job{Bucket: bucket, ID: "a", Payload: []byte("{}")})
			info := w.awaitState("a", test.state)
			must.Equal(t, ran.of("a"), len(test.runs), "the handler ran times")
			if info.Last.Reason != test.reason || info.Last.Cause != test.cause {
				t.Errorf("the dead letter says %+v, want reason %q and cause %q", info.Last, test.reason, test.cause)
			}
			w.wantNoTrace()
		})
	}
}

// taskID is that of a task of job a. A busy machine gives permits back, and then its epoch is above 1.
var taskID = regexp.MustCompile(`^a\.[0-9]+$`)

// TestTaskOfAJob shows what a handler sees of a job, and the task's id.
func TestTaskOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(b *shaper.Bucket, c *asynq.Config) {
		b.Flow = &shaper.FlowSettings{GroupSettings: shaper.GroupSettings{Key: "job", Burst: 1}, MaxFlows: 10}
		c.Timeout, c.Retention = 90*time.Second, time.Hour
	})
	type sight struct {
		name, payload, id string
		headers           map[string]string
		left              time.Duration
		retries           int
	}
	seen := make(chan sight, 1)
	w.serve(func(ctx context.Context, task *hibiken.Task) error {
		deadline, _ := ctx.Deadline()
		id, _ := hibiken.GetTaskID(ctx)
		retries, _ := hibiken.GetMaxRetry(ctx)
		seen <- sight{task.Type(), string(task.Payload()), id, maps.Clone(task.Headers()), time.Until(deadline), retries}
		return nil
	}, asynq.Middleware(w.leases))
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a", Flow: "tenant", Payload: []byte("\x00\xff"), Headers: map[string][]string{
		"traceparent": {"00-1-2-01"}, asynq.HeaderTask: {"email:welcome"}, "asynq-timeout": {"5s"},
	}})
	w.awaitState("a", shaper.StateDone)
	s := <-seen
	if s.name != "email:welcome" || s.payload != "\x00\xff" || !taskID.MatchString(s.id) {
		t.Errorf("the handler saw task %q of type %q with payload %q", s.id, s.name, s.payload)
	}
	if s.left > 5*time.Second || s.retries == 0 {
		t.Errorf("the handler has %s and asynq %d retries, want at most 5s, and some", s.left, s.retries)
	}
	want := map[string]string{"traceparent": "00-1-2-01", asynq.HeaderJob: "a", asynq.HeaderBucket: bucket, asynq.HeaderFlow: "tenant", asynq.HeaderAttempt: "1"}
	if s.headers[asynq.HeaderLease] == "" {
		t.Error("the task has no lease")
	}
	delete(s.headers, asynq.HeaderLease)
	must.Equal(t, fmt.Sprint(s.headers), fmt.Sprint(want), "headers %v, want %v", s.headers, want)
	w.await("the task is completed", func() bool { return w.queueHolds(hibiken.TaskStateCompleted) == 1 })
}

// TestHandoverEndsTheJob uses handlers without the middleware: a retry is asynq's.
func TestHandoverEndsTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *shaper.Bucket, c *asynq.Config) { c.Settle = asynq.SettleHandover })
	var ran runs
	w.serve(func(_ context.Context, task *hibiken.Task) error {
		must.Equal(t, task.Headers()[asynq.HeaderLease], "", "the task has a lease, and nobody is to settle it")
		if ran.note(task) == 1 {
			return errors.New("busy")
		}
		return nil
	})
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	w.awaitState("a", shaper.StateDone)
	w.await("asynq runs the task again", func() bool { return ran.of("a") == 2 })
}

// TestTaskThatNeverStarted has an asynq server without the middleware.
func TestTaskThatNeverStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve(func(context.Context, *hibiken.Task) error { return nil })
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	info := w.awaitState("a", shaper.StateDead)
	if info.Last.Reason != asynq.ReasonNeverStarted {
		t.Errorf("the dead letter says %+v, want reason %s", info.Last, asynq.ReasonNeverStarted)
	}
	w.await("the log asks for the middleware", func() bool {
		return strings.Contains(w.log.String(), "is the middleware of Tundish installed")
	})
}

// TestHandlerThatNeverReturns ends the goroutine of a handler. Its job does not stay in flight.
func TestHandlerThatNeverReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ran runs
	w.serve(func(_ context.Context, task *hibiken.Task) error {
		if ran.note(task) == 1 {
			runtime.Goexit()
		}
		return nil
	}, asynq.Middleware(w.leases))
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a"})
	w.awaitState("a", shaper.StateDone)
	must.Equal(t, ran.of("a"), 2, "the job ran times")
}

// TestFromHandler runs an asynq handler in the dispatcher's process.
func TestFromHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ran runs
	handler := hibiken.HandlerFunc(func(ctx context.Context, task *hibiken.Task) error {
		if _, bounded := ctx.Deadline(); !bounded || task.Type() != "email:send" || string(task.Payload()) != "hello" {
			return fmt.Errorf("type %q, payload %q, a deadline: %t: %w", task.Type(), task.Payload(), bounded, hibiken.SkipRetry)
		}
		if ran.note(task) == 1 {
			panic("a bug")
		}
		return nil
	})
	w.dispatchTo(asynq.FromHandler(w.config, handler))
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a", Payload: []byte("hello")})
	w.awaitState("a", shaper.StateDone)
	must.Equal(t, ran.of("a"), 2, "the handler ran times")
}
