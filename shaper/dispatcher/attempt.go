package dispatcher

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// validFor is how long after its slot the job may depart: no permit of a window lasts beyond its end.
func (l *leased) validFor() time.Duration {
	if l.closes.IsZero() {
		return l.permitTTL
	}
	return min(l.permitTTL, l.closes.Sub(l.slot)-time.Nanosecond)
}

// callWorker survives a worker that panics, or that gives no result.
func (d *bucketLoop) callWorker(ctx context.Context, job *leased, outcome *shaper.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "a worker panicked", "job", job.ID, "panic", p, "stack", string(debug.Stack()))
			*outcome = panicked(p)
		}
	}()
	d.prepare(job)
	*outcome = (*d.worker.Load()).Deliver(ctx, &job.Attempt)
	check(outcome)
}

func panicked(p any) shaper.Outcome {
	return shaper.Retry("panic", fmt.Sprint("the worker panicked: ", p))
}

// prepare gives a job what the worker may ask it for.
func (d *bucketLoop) prepare(job *leased) {
	job.Permit(job.slot, job.validFor(), job.depart)
	job.Epoch = job.epoch
	job.Lend(func() string { return d.ticketOf(job) })
}

// check replaces an outcome without a result that there is.
func check(outcome *shaper.Outcome) {
	if outcome.Result < shaper.ResultDone || outcome.Result > shaper.ResultHandedOver {
		*outcome = shaper.Retry("no_result", fmt.Sprintf("the worker answered result %d", outcome.Result))
	}
}
