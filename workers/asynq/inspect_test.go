package asynq_test

import (
	"context"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/asynq"
)

// TestInspectorAndOurTasks looks at tasks as the command line tool of asynq and asynqmon do, through an Inspector, and does to them what these
// may do: cancel, delete and archive. No job is lost.
func TestInspectorAndOurTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *shaper.Bucket, c *asynq.Config) { c.Retention = time.Hour })
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "deleted"}, shaper.Job{Bucket: bucket, ID: "archived"},
		shaper.Job{Bucket: bucket, ID: "runs", Payload: []byte(`{"user":7}`), Headers: map[string][]string{asynq.HeaderTask: {"email:welcome"}}})
	w.await("the tasks wait", func() bool { return w.queueHolds(hibiken.TaskStatePending) == 3 })
	if queues, err := w.inspector.Queues(); err != nil || len(queues) != 1 || queues[0] != queue {
		t.Errorf("the queues are %v, %v", queues, err)
	}
	pending := must.Get(w.inspector.ListPendingTasks(queue))(t)
	var running string
	for _, task := range pending {
		var err error
		switch job := task.Headers[asynq.HeaderJob]; job {
		case "deleted":
			err = w.inspector.DeleteTask(queue, task.ID)
		case "archived":
			err = w.inspector.ArchiveTask(queue, task.ID)
		case "runs":
			if running = task.ID; task.Type != "email:welcome" || string(task.Payload) != `{"user":7}` {
				t.Errorf("the task is %+v", task)
			}
		default:
			t.Errorf("a task of job %q", job)
		}
		must.OK(t, err)
	}

	var ran runs
	w.serve(func(ctx context.Context, task *hibiken.Task) error {
		if ran.note(task) == 1 {
			<-ctx.Done() // until it is cancelled
		}
		return ctx.Err()
	}, asynq.Middleware(w.leases))
	w.await("the task runs", func() bool { return ran.of("runs") == 1 })
	if active, err := w.inspector.ListActiveTasks(queue); err != nil || len(active) != 1 || active[0].ID != running {
		t.Errorf("active are %+v, %v", active, err)
	}
	w.await("the server says what it runs", func() bool {
		servers, err := w.inspector.Servers()
		return err == nil && len(servers) == 1 && len(servers[0].ActiveWorkers) == 1 && servers[0].ActiveWorkers[0].TaskID == running
	})
	w.await("the task is cancelled, and its job runs again", func() bool {
		must.OK(t, w.inspector.CancelProcessing(running))
		return ran.of("runs") == 2
	})
	w.awaitState("runs", shaper.StateDone)
	for _, id := range []string{"deleted", "archived"} {
		if info := w.awaitState(id, shaper.StateDead); info.Last.Reason != asynq.ReasonNeverStarted {
			t.Errorf("the dead letter of job %s says %+v", id, info.Last)
		}
	}
	w.await("asynq keeps the task that ran", func() bool {
		completed, err := w.inspector.ListCompletedTasks(queue)
		return err == nil && len(completed) == 1 && completed[0].Headers[asynq.HeaderJob] == "runs" && completed[0].Headers[asynq.HeaderAttempt] == "2"
	})
	w.await("asynq has revoked its own retry of the task that was cancelled", func() bool {
		return w.queueHolds(hibiken.TaskStateRetry)+w.queueHolds(hibiken.TaskStatePending)+w.queueHolds(hibiken.TaskStateActive) == 0
	})
	must.Equal(t, ran.of("runs"), 2, "the job ran times")
}

// TestTimeoutOfAHandler has a handler that runs into its timeout. asynq gives up on the task then, and retries it by itself: that run is
// revoked. The job is tried again by Tundish.
func TestTimeoutOfAHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ran runs
	w.serve(func(ctx context.Context, task *hibiken.Task) error {
		if ran.note(task) == 1 {
			<-ctx.Done()
		}
		return ctx.Err()
	}, asynq.Middleware(w.leases))
	w.dispatch()
	w.enqueue(shaper.Job{Bucket: bucket, ID: "a", Headers: map[string][]string{asynq.HeaderTimeout: {"1s"}}})
	w.awaitState("a", shaper.StateDone)
	w.await("asynq has no task any more", func() bool {
		return w.queueHolds(hibiken.TaskStateRetry)+w.queueHolds(hibiken.TaskStatePending)+w.queueHolds(hibiken.TaskStateActive) == 0
	})
	must.Equal(t, ran.of("a"), 2, "the job ran times")
	w.wantNoTrace()
}
