package dispatcher

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// deliverBatch makes the worker deliver jobs as a batch. Jobs with a hash collision may not agree: they are returned.
func (v *deliverer) deliverBatch(ctx context.Context, jobs request) []shaper.Outcome {
	worker, ok := (*v.worker.Load()).(shaper.BatchWorker)
	outcomes := jobs.returned("no_company")
	if !ok { // a reload disabled batches in the bucket
		v.callWorker(ctx, jobs[0], &outcomes[0])
		return outcomes
	}
	first := jobs[0]
	batch := &shaper.Batch{ID: fmt.Sprint("batch_", first.claim, "_", first.batch)}
	if first.batch == 0 {
		batch.ID = fmt.Sprint("batch_", first.claim, "_", first.ID)
	}
	var sent []int
	for i, job := range jobs {
		if i > 0 && !job.Agrees(&first.Attempt) {
			continue
		}
		job.Own = first.Own // the claim returns it once per batch
		v.prepare(ctx, job)
		if i > 0 { // the batch departs once
			job.Permit(job.slot, job.validFor(), nil)
			job.Space(nil)
		}
		batch.Attempts, sent = append(batch.Attempts, &job.Attempt), append(sent, i)
	}
	answers := v.callBatchWorker(ctx, worker, batch)
	for n, i := range sent {
		outcome := shaper.Retry("no_result", "the worker gave no outcome of the job")
		if n < len(answers) {
			outcome = answers[n]
			check(&outcome)
		}
		if outcome.Result == shaper.ResultHandedOver {
			outcome = shaper.Retry("no_result", "the worker handed over a job of a batch")
		}
		outcomes[i] = outcome
	}
	signalOnce(outcomes)
	if batch.Fault != nil {
		if logs, more := v.settler.failures.note("\x00batch", time.Now()); logs {
			v.log.WarnContext(ctx, "the answer to a batch has a fault", append(v.namesOf(first.ID, v.pathOf(first)),
				"batch", batch.ID, "jobs", len(sent), "error", batch.Fault, "unlogged", more)...)
		}
	}
	return outcomes
}

// callBatchWorker calls the worker, and turns a panic into outcomes.
func (v *deliverer) callBatchWorker(ctx context.Context, worker shaper.BatchWorker, batch *shaper.Batch) (outcomes []shaper.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			v.log.ErrorContext(ctx, "a worker panicked", "batch", batch.ID, "panic", p, "stack", string(debug.Stack()))
			outcomes = make([]shaper.Outcome, len(batch.Attempts))
			for i := range outcomes {
				outcomes[i] = panicked(p)
			}
		}
	}()
	return worker.DeliverBatch(ctx, batch)
}

// signalFailedToo is the signal of a job whose failed request is already counted by another job of the batch: see lua/settle.lua.
const signalFailedToo shaper.Signal = lua.SignalFailedToo

// signalOnce leaves the signal of a request on one of its jobs. The request was accepted if any outcome is, else throttled if any is, else it failed.
func signalOnce(outcomes []shaper.Outcome) {
	signal, at := shaper.SignalNone, -1
	for _, candidate := range []shaper.Signal{shaper.SignalFailed, shaper.SignalThrottled, shaper.SignalAccepted} {
		for i := len(outcomes) - 1; i >= 0; i-- {
			if outcomes[i].Signal == candidate {
				signal, at = candidate, i
			}
		}
	}
	for i := range outcomes {
		if i == at {
			continue
		}
		outcomes[i].Signal = shaper.SignalNone
		if signal == shaper.SignalFailed {
			outcomes[i].Signal = signalFailedToo
		}
	}
}
