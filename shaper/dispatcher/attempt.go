package dispatcher

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/tundish-io/tundish/shaper"
)

// callWorker calls the worker, and turns a panic or a missing result into an outcome.
func (v *deliverer) callWorker(ctx context.Context, job *leased, outcome *shaper.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			v.log.ErrorContext(ctx, "a worker panicked", "job", job.ID, "panic", p, "stack", string(debug.Stack()))
			*outcome = panicked(p)
		}
	}()
	v.prepare(ctx, job)
	*outcome = (*v.worker.Load()).Deliver(ctx, &job.Attempt)
	check(outcome)
}

func panicked(p any) shaper.Outcome {
	return shaper.Retry("panic", fmt.Sprint("the worker panicked: ", p))
}

// prepare sets what the worker may call on the attempt. ctx is the context of the delivery.
func (v *deliverer) prepare(ctx context.Context, job *leased) {
	job.Permit(job.slot, job.validFor(), job.depart)
	job.Space(func() bool { return v.departures.wait(ctx, v.Settings.Load(), job) })
	job.Clock(v.redisNow)
	job.Epoch = job.epoch
	job.SetTicket(func() string { return v.ticketOf(job) })
}

// check replaces an outcome whose result is invalid.
func check(outcome *shaper.Outcome) {
	if outcome.Result < shaper.ResultDone || outcome.Result > shaper.ResultHandedOver {
		*outcome = shaper.Retry("no_result", fmt.Sprintf("the worker answered result %d", outcome.Result))
	}
}

// handsOver reports whether the jobs of the bucket run in other processes.
func (v *deliverer) handsOver() bool {
	_, ok := (*v.worker.Load()).(shaper.HandsOver)
	return ok
}
