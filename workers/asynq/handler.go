package asynq

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// FromHandler makes a [shaper.Worker] of an asynq.Handler. The dispatcher's process runs it, without an asynq queue. Of config only Task and Timeout
// count, which say what a task looks like. The error that the handler returns decides the outcome, see [OutcomeOf]. The task has no ResultWriter. A
// handler that goes on after its timeout keeps its worker until it returns.
func FromHandler(config Config, handler asynq.Handler) shaper.Worker {
	return shaper.WorkerFunc(func(ctx context.Context, attempt *shaper.Attempt) shaper.Outcome {
		task, s, err := config.task(attempt, "")
		if err != nil {
			return shaper.Dead(workers.ReasonInvalid, workers.Snippet([]byte(err.Error())))
		}
		if s.isOver() {
			return tooLate(s.deadline, attempt.Number)
		}
		if err := attempt.Depart(); err != nil {
			return shaper.Returned(workers.ReasonLate)
		}
		if s.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.timeout)
			defer cancel()
		}
		if !s.deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, s.deadline)
			defer cancel()
		}
		return OutcomeOf(run(ctx, handler, task))
	})
}
