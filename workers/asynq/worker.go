package asynq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// Reasons of outcomes of this worker and its middleware, in addition to the reasons of package workers.
const (
	ReasonUnavailable  = "asynq_unavailable" // the Redis of asynq did not accept the task
	ReasonNeverStarted = "never_started"     // asynq no longer has the task, and no Middleware started it
	ReasonDeadline     = "deadline"          // the deadline of the job's header passed before a handler started the attempt
	ReasonHandler      = "handler_error"     // the handler returned an error
	ReasonPanic        = "panic"             // the handler panicked
	ReasonSkipRetry    = "skip_retry"        // the handler returned asynq.SkipRetry
	ReasonRevoked      = "revoked"           // the handler returned asynq.RevokeTask
)

const (
	holdWhileAway = time.Second // of jobs, while the Redis of asynq accepts no tasks
	handoverTries = 2           // of one attempt: a lost reply is requested again

	// handoverRetention is how long asynq keeps a completed task at least, with SettleHandover. Meanwhile it refuses the task if its
	// job is handed over again, because the reply or the dispatcher was lost.
	handoverRetention = time.Minute
)

// Worker is the [shaper.Worker] of the kind "asynq". It is safe for concurrent use.
type Worker struct {
	config    Config
	client    *asynq.Client
	inspector *asynq.Inspector
}

var _ shaper.HandsOver = (*Worker)(nil)

// New makes a worker, or returns the error of [Config.Validate]. It makes no connection yet.
func New(config Config) (*Worker, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Redis == nil {
		return nil, errors.New("asynq: no Redis client is given: set Config.Redis to a client of the Redis that the asynq servers use")
	}
	return &Worker{
		config: config, client: asynq.NewClientFromRedisClient(config.Redis), inspector: asynq.NewInspectorFromRedisClient(config.Redis),
	}, nil
}

// HandsOver says that jobs run in asynq servers: see [shaper.HandsOver].
func (*Worker) HandsOver() {}

// Deliver hands the job to asynq. It takes one round trip, and one more for each queue that this process has not used yet.
//
// With [SettleHandler] the task has the id "<job>.<epoch>", so a hand-over that is repeated after a lost reply makes no second task.
// With [SettleHandover] the id is "<job>.<time of its enqueue in microseconds>", which also stays the same after a crash. asynq knows it
// until its retention is over, which is a minute at least then. A hand-over that fails is repeated once at once. While the
// Redis of asynq does not take tasks, the job and all others of its scope are held for a second at a time, and no attempt is spent.
func (w *Worker) Deliver(ctx context.Context, attempt *shaper.Attempt) shaper.Outcome {
	lease := ""
	if w.config.byHandler() {
		lease = attempt.Ticket()
	}
	task, s, err := w.config.task(attempt, lease)
	if err != nil {
		return shaper.Dead(workers.ReasonInvalid, workers.Snippet([]byte(err.Error())))
	}
	if s.isOver() {
		return tooLate(s.deadline, attempt.Number)
	}
	if err := attempt.Depart(); err != nil {
		return shaper.Returned(workers.ReasonLate)
	}
	id, opts := w.taskID(attempt), w.config.options(s)
	for try := 1; ; try++ {
		switch err = w.enqueue(ctx, task, id, opts); {
		case err == nil && w.config.byHandler():
			return shaper.HandedOver(w.left(id, attempt.Number))
		case err == nil:
			return shaper.Done(0)
		case errors.Is(err, errOtherTask):
			id = fmt.Sprintf("%s.%d", id, time.Now().UnixMicro())
		case ctx.Err() != nil:
			return shaper.Returned(workers.ReasonShutdown)
		case try >= handoverTries: // asynq does not report lost replies, so each error may be one
			return shaper.Outcome{
				Result: shaper.ResultHeld, RetryAfter: holdWhileAway, Reason: ReasonUnavailable,
				Detail: workers.Snippet([]byte(fmt.Sprintf("asynq queue %q did not take the task: %v", w.config.Queue, err))),
			}
		}
	}
}

// taskID names the task of an attempt.
func (w *Worker) taskID(a *shaper.Attempt) string {
	if w.config.byHandler() || a.Enqueued.IsZero() {
		return fmt.Sprintf("%s.%d", a.ID, a.Epoch)
	}
	return fmt.Sprintf("%s.%d", a.ID, a.Enqueued.UnixMicro())
}

// errOtherTask says that a task of an earlier job with the same id has the task's id.
var errOtherTask = errors.New("asynq: another task has this id")

// enqueue enqueues a task. An existing task is this one, unless its lease differs.
func (w *Worker) enqueue(ctx context.Context, task *asynq.Task, id string, opts []asynq.Option) error {
	for {
		_, err := w.client.EnqueueContext(ctx, task, append(opts[:len(opts):len(opts)], asynq.TaskID(id))...)
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			return err
		}
		lease := task.Headers()[HeaderLease]
		if lease == "" {
			return nil
		}
		info, err := w.inspector.GetTaskInfo(w.config.Queue, id)
		switch {
		case isGone(err): // if that was this task, a second one does no harm: it starts no more
		case err != nil:
			return err
		case info.Headers[HeaderLease] == lease:
			return nil
		default:
			return errOtherTask
		}
	}
}

func isGone(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound)
}

// tooLate returns the outcome of an attempt that asynq would never run. A handler may have run an earlier attempt.
func tooLate(deadline time.Time, attempt int) shaper.Outcome {
	return shaper.Dead(ReasonDeadline, fmt.Sprintf("the deadline of the job, %s, passed before a handler started attempt %d",
		deadline.UTC().Format(time.RFC3339), attempt))
}

// left reports whether a task is gone from the queue without a start, or cannot start any more. Only the dispatcher calls it, until a process has
// started the job. One round trip.
func (w *Worker) left(id string, attempt int) func(context.Context) (shaper.Outcome, bool, error) {
	return func(ctx context.Context) (shaper.Outcome, bool, error) {
		if ctx.Err() != nil {
			return shaper.Outcome{}, false, ctx.Err()
		}
		info, err := w.inspector.GetTaskInfo(w.config.Queue, id)
		became := "is not there any more"
		switch {
		case isGone(err):
		case err != nil:
			return shaper.Outcome{}, false, fmt.Errorf("asynq queue %q: look for task %q: %w", w.config.Queue, id, err)
		case info.State == asynq.TaskStateCompleted, info.State == asynq.TaskStateArchived:
			became = "is " + info.State.String()
		case !info.Deadline.IsZero() && time.Now().After(info.Deadline):
			_ = w.inspector.DeleteTask(w.config.Queue, id) // otherwise asynq retries it for days, without running it
			return tooLate(info.Deadline, attempt), true, nil
		default:
			return shaper.Outcome{}, false, nil
		}
		return shaper.Dead(ReasonNeverStarted, fmt.Sprintf(
			"task %s of queue %q %s, and it never started: is the middleware of Tundish installed in the asynq server? Or did somebody delete the task?", id, w.config.Queue, became)), true, nil
	}
}
