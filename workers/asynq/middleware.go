package asynq

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/workers"
)

// Middleware wraps the handlers of an asynq server so that they settle the jobs of buckets whose worker is asynq. Tasks that no bucket handed over pass
// through unchanged:
//
//	mux := asynq.NewServeMux()
//	mux.Use(tundishasynq.Middleware(leases))
//
// Before the handler, the middleware marks the start of the job in Redis, once an epoch. A task of an old epoch, or one that was started before, is
// revoked without running. While the handler runs, the middleware extends its lease. The handler's context ends when the lease is lost. The handler's
// error decides the outcome: see [OutcomeOf].
//
// The middleware returns nil or an error that wraps [asynq.RevokeTask] to asynq. So asynq neither retries nor archives the task, and an
// asynq.ErrorHandler still sees the handler's error. There is one exception: while the Redis of Tundish is unavailable, the start waits, and when the
// task's time is over asynq retries the task, which has not run.
func Middleware(leases *dispatcher.Leases) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			ticket := task.Headers()[HeaderLease]
			if ticket == "" {
				return next.ProcessTask(ctx, task)
			}
			lease, err := leases.Start(ctx, ticket)
			switch {
			case errors.Is(err, dispatcher.ErrNotStarted):
				return fmt.Errorf("job %q is not run: %w: %w", task.Headers()[HeaderJob], err, asynq.RevokeTask)
			case err != nil:
				return fmt.Errorf("job %q has not started, and asynq tries again: %w", task.Headers()[HeaderJob], err)
			}
			err = errEnded
			defer func() { lease.Settle(OutcomeOf(err)) }()
			err = run(lease.Context(), next, task)
			if err == nil {
				return nil
			}
			return fmt.Errorf("%w (Tundish decides on a retry: %w)", err, asynq.RevokeTask)
		})
	}
}

// errEnded stands for the error of a handler that does not return: it called runtime.Goexit.
var errEnded = errors.New("the handler ended its goroutine, and returned nothing")

// panicked is the error of a handler that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string {
	return fmt.Sprintf("the handler panicked: %v\n%s", p.value, p.stack)
}

// run survives a handler that panics.
func run(ctx context.Context, handler asynq.Handler, task *asynq.Task) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicked{value: value, stack: debug.Stack()}
		}
	}()
	return handler.ProcessTask(ctx, task)
}

// retryAfter is an error that names a time to wait for.
type retryAfter struct {
	wait time.Duration
	err  error
}

func (e *retryAfter) Error() string {
	return fmt.Sprintf("%v (asks to wait for %s)", e.err, e.wait)
}

func (e *retryAfter) Unwrap() error { return e.err }

// RetryAfter is how long the flow sends no job.
func (e *retryAfter) RetryAfter() time.Duration { return e.wait }

// Hold wraps a handler's error to say that its downstream asks to wait. The flow of the job (or its bucket or pool, see
// buckets.adapt.scope) sends nothing for that time, at most buckets.adapt.max_hold, and the job spends no attempt.
func Hold(wait time.Duration, err error) error { return &retryAfter{wait: wait, err: err} }

// OutcomeOf returns the outcome of a job by the error of its handler:
//
//	nil                                       done
//	[asynq.RevokeTask]                        dropped: no dead letter
//	[asynq.SkipRetry]                         a dead letter
//	an error with RetryAfter() time.Duration  held, with all jobs of its scope: see [Hold]
//	any other error, or a panic               tried again at the pace of the bucket
//
// Wrapped errors count, the first of the list that matches.
func OutcomeOf(err error) shaper.Outcome {
	if err == nil {
		return shaper.Done(0)
	}
	detail := workers.Snippet([]byte(err.Error()))
	var named interface{ RetryAfter() time.Duration }
	var panicked *panicked
	switch {
	case errors.Is(err, asynq.RevokeTask):
		return shaper.Dropped(ReasonRevoked, detail)
	case errors.Is(err, asynq.SkipRetry):
		return shaper.Dead(ReasonSkipRetry, detail)
	case errors.As(err, &named) && named.RetryAfter() > 0:
		return shaper.Outcome{Result: shaper.ResultHeld, RetryAfter: named.RetryAfter(), Reason: ReasonHandler, Detail: detail, Signal: shaper.SignalThrottled}
	case errors.As(err, &panicked):
		return shaper.Retry(ReasonPanic, workers.Snippet(fmt.Appendf(nil, "the handler panicked: %v", panicked.value)))
	default:
		return shaper.Retry(ReasonHandler, detail)
	}
}
