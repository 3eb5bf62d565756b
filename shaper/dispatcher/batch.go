package dispatcher

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// claimBatch is what claim.lua answers in front of a batch: its first job, how many it has, and its number.
const claimBatch = -2

// request is the jobs that one request carries: those of a batch, or one job.
type request []*leased

// requestsOf puts jobs together that the claim has made a batch. They stand side by side.
func requestsOf(jobs []*leased) []request {
	requests := make([]request, 0, len(jobs))
	for i, job := range jobs {
		if i > 0 && job.batch != 0 && job.batch == jobs[i-1].batch {
			requests[len(requests)-1] = append(requests[len(requests)-1], job)
		} else {
			requests = append(requests, request{job})
		}
	}
	return requests
}

// owner is the claim as Redis has it with the job.
func (l *leased) owner() string {
	if l.batch == 0 {
		return l.claim
	}
	return fmt.Sprint(l.claim, "#", l.batch)
}

// withCancel lets each job of the request be cancelled by itself. The request ends with the last one: as long as one job is ours, its
// outcome counts. The caller holds d.mu, and so does whoever cancels.
func (jobs request) withCancel(cancel context.CancelCauseFunc) {
	if len(jobs) == 1 {
		jobs[0].cancel = cancel
		return
	}
	left := len(jobs)
	for _, job := range jobs {
		canceled := false
		job.cancel = func(cause error) {
			if !canceled {
				canceled = true
				left--
			}
			if left == 0 {
				cancel(cause)
			}
		}
	}
}

// returned is the outcomes of jobs of which none is sent.
func (jobs request) returned(reason string) []shaper.Outcome {
	outcomes := make([]shaper.Outcome, len(jobs))
	for i := range outcomes {
		outcomes[i] = shaper.Returned(reason)
	}
	return outcomes
}

// travelsAsBatch reports whether a request goes to the worker as a batch: in a bucket with batches also that of one job.
func (d *bucketLoop) travelsAsBatch(jobs request) bool {
	return len(jobs) > 1 || d.Settings.Load().Batch.Has() && !shaper.GoesAlone(jobs[0].Method)
}

// attempt has the worker make the attempt, at the slot.
func (d *bucketLoop) attempt(ctx context.Context, jobs request) []shaper.Outcome {
	first := jobs[0]
	began := time.Now()
	var outcomes []shaper.Outcome
	if d.travelsAsBatch(jobs) {
		outcomes = d.deliverBatch(ctx, jobs)
	} else {
		outcomes = make([]shaper.Outcome, 1)
		d.callWorker(ctx, first, &outcomes[0])
	}
	sent := 0
	for i := range outcomes {
		if outcomes[i].Result == shaper.ResultReturned {
			continue
		}
		sent++
		if first.departed.IsZero() {
			first.depart(began.Sub(first.slot)) // a worker that does not tell left at once
			first.departed = began
		}
	}
	if d.travelsAsBatch(jobs) {
		d.store.Metrics.CountBatch(d.Name, sent)
	}
	for _, job := range jobs[1:] {
		job.departed = first.departed
	}
	return outcomes
}

// deliverBatch has the worker deliver jobs as a batch. Jobs that a hash took for alike, or that an older program stored, may not
// agree: they go back.
func (d *bucketLoop) deliverBatch(ctx context.Context, jobs request) []shaper.Outcome {
	worker, ok := (*d.worker.Load()).(shaper.BatchWorker)
	outcomes := jobs.returned("no_company")
	if !ok { // a reload took the batches from the bucket
		d.callWorker(ctx, jobs[0], &outcomes[0])
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
		job.Own = first.Own // the claim tells it once
		d.prepare(job)
		if i > 0 {
			job.Permit(job.slot, job.validFor(), nil) // the batch departs once
		}
		batch.Attempts, sent = append(batch.Attempts, &job.Attempt), append(sent, i)
	}
	answers := d.callBatchWorker(ctx, worker, batch)
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
		if logs, more := d.failures.note("\x00batch", time.Now()); logs {
			d.log.WarnContext(ctx, "the answer to a batch has a fault", append(d.namesOf(first.ID, d.pathOf(first)),
				"batch", batch.ID, "jobs", len(sent), "error", batch.Fault, "unlogged", more)...)
		}
	}
	return outcomes
}

// callBatchWorker survives a worker that panics.
func (d *bucketLoop) callBatchWorker(ctx context.Context, worker shaper.BatchWorker, batch *shaper.Batch) (outcomes []shaper.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "a worker panicked", "batch", batch.ID, "panic", p, "stack", string(debug.Stack()))
			outcomes = make([]shaper.Outcome, len(batch.Attempts))
			for i := range outcomes {
				outcomes[i] = panicked(p)
			}
		}
	}()
	return worker.DeliverBatch(ctx, batch)
}

// signalFailedToo is the signal of a job whose request failed, which another job of the batch tells: see lua/settle.lua.
const signalFailedToo shaper.Signal = 4

// signalOnce leaves the signal of a request to one of its jobs. The request was accepted if one outcome says so, else throttled, else
// it failed.
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
