package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/tracing"
)

// deliverer makes the worker deliver the jobs of one bucket at their slots, with a goroutine per request.
type deliverer struct {
	*bucketConn
	held        *leaseHolder
	settler     *settler
	handovers   *handovers
	worker      atomic.Pointer[shaper.Worker] // replaced by a reload
	concurrency int
	wake        token          // wakes the claim loop
	spans       *attemptTracer // nil: no spans
	faults      localFaults
	faultLog    *faultLog

	underWay sync.WaitGroup
	mu       sync.Mutex
	running  int  // deliveries that occupy a worker
	starved  bool // the claim loop waits for a worker
}

func newDeliverer(settler *settler, worker shaper.Worker, concurrency int) *deliverer {
	v := &deliverer{
		bucketConn: settler.bucketConn, held: settler.held, settler: settler, handovers: newHandovers(settler), concurrency: concurrency, wake: newToken(),
		faultLog: &faultLog{log: settler.store.Log},
	}
	v.worker.Store(&worker)
	return v
}

// free returns the number of idle workers.
func (v *deliverer) free() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	free := max(v.faults.bound(v.concurrency)-v.running, 0)
	v.starved = free == 0
	return free
}

// start starts the delivery of jobs. Each request gets a goroutine, which sleeps until the slot. It returns the number of requests.
//
// A goroutine's stack starts small, and growing it costs more than most steps of a delivery. So the functions from here to net/http use little stack:
// outcomes of rare cases are made in separate functions.
func (v *deliverer) start(jobs []*leased) int {
	if len(jobs) == 0 {
		return 0
	}
	v.held.hold(jobs...)
	requests := requestsOf(jobs)
	own := 0 // requests that a worker here sends
	for _, jobs := range requests {
		if !jobs[0].isSelfDispatched() {
			own++
		}
	}
	v.mu.Lock()
	v.running += own
	v.mu.Unlock()
	for _, jobs := range requests {
		if jobs[0].isSelfDispatched() {
			v.underWay.Go(func() { v.settler.settle(jobs[0], v.publishTicket(jobs[0])) })
			continue
		}
		v.underWay.Go(func() {
			outcomes := v.deliver(jobs)
			v.noteFault(&outcomes[0])
			v.release()
			v.delivered(jobs, outcomes)
		})
	}
	return len(requests)
}

// noteFault records whether this host could make an attempt.
func (v *deliverer) noteFault(outcome *shaper.Outcome) {
	now := time.Now()
	if outcome.Local {
		v.store.Metrics.CountLocalFault(v.Name, outcome.Reason)
		v.faultLog.failed(v.Name, outcome, now)
	}
	v.mu.Lock()
	running := v.running
	v.mu.Unlock()
	v.faults.note(v.faultLog, outcome, running, v.concurrency, now)
}

// hostFault returns why this host cannot connect to the receivers of the bucket; "" if it can.
func (v *deliverer) hostFault() string { return v.faults.current(v.concurrency, time.Now()) }

// delivered passes on the outcomes of a request.
func (v *deliverer) delivered(jobs request, outcomes []shaper.Outcome) {
	if outcomes[0].Result == shaper.ResultHandedOver {
		v.handovers.add(jobs[0], outcomes[0])
		return
	}
	settlements := make([]*settlement, len(jobs))
	for i, job := range jobs {
		settlements[i] = v.settler.settlementOf(job, outcomes[i])
	}
	v.settler.queue.Add(settlements...)
}

// release frees a worker, and wakes the claim loop if it waits for one.
func (v *deliverer) release() {
	v.mu.Lock()
	v.running--
	starved := v.starved
	v.starved = false
	v.mu.Unlock()
	if starved {
		v.wake.put()
	}
}

// deliver waits for the slot and makes the worker attempt the request. It returns an outcome for each job.
func (v *deliverer) deliver(jobs request) []shaper.Outcome {
	first := jobs[0]
	ctx, cancel := context.WithCancelCause(v.life)
	defer cancel(nil)
	v.held.delivering(jobs, cancel)
	if wait := time.Until(first.slot); wait > 0 {
		sleep(ctx, wait)
	}
	if ctx.Err() != nil {
		return jobs.returned("stopped")
	}
	if v.settler.gate.keeps(func() string { return v.scopeOf(first) }, first.claimedAt) {
		return jobs.returned(reasonHeld)
	}
	first.woken = time.Now()
	unsent := jobs.unsent(first.lateness())
	if unsent == nil {
		return v.attempt(ctx, jobs)
	}
	return v.attemptRest(ctx, jobs, unsent)
}

// attemptRest makes the worker attempt the jobs that have no outcome yet.
func (v *deliverer) attemptRest(ctx context.Context, jobs request, outcomes []shaper.Outcome) []shaper.Outcome {
	var rest request
	var places []int
	for i, job := range jobs {
		if outcomes[i].Result == 0 {
			rest, places = append(rest, job), append(places, i)
		}
	}
	if len(rest) == 0 {
		return outcomes
	}
	rest[0].Own = jobs[0].Own
	answers := v.attempt(ctx, rest)
	for n, i := range places {
		outcomes[i] = answers[n]
	}
	return outcomes
}

// travelsAsBatch reports whether the worker gets a request as a batch: in a bucket with batches, also a single job.
func (v *deliverer) travelsAsBatch(jobs request) bool {
	return len(jobs) > 1 || v.Settings.Load().Batch.Has() && !shaper.GoesAlone(jobs[0].Method)
}

// attempt makes the worker attempt a request, in a span if there is a tracer.
func (v *deliverer) attempt(ctx context.Context, jobs request) []shaper.Outcome {
	if v.spans == nil {
		return v.attemptNow(ctx, jobs)
	}
	return v.tracedAttempt(ctx, jobs)
}

// tracedAttempt is attemptNow in a span.
func (v *deliverer) tracedAttempt(ctx context.Context, jobs request) []shaper.Outcome {
	sent := make([]trace.SpanContext, len(jobs))
	for i, job := range jobs {
		sent[i] = tracing.Of(job.Headers)
	}
	ctx, span := v.spans.begin(ctx, jobs, sent)
	if !v.travelsAsBatch(jobs) { // the items of a batch keep the trace contexts of their enqueues
		jobs[0].Headers = tracing.With(jobs[0].Headers, span.SpanContext())
	}
	outcomes := v.attemptNow(ctx, jobs)
	endAttempt(span, outcomes)
	return outcomes
}

func (v *deliverer) attemptNow(ctx context.Context, jobs request) []shaper.Outcome {
	first := jobs[0]
	began := time.Now()
	var outcomes []shaper.Outcome
	if v.travelsAsBatch(jobs) {
		outcomes = v.deliverBatch(ctx, jobs)
	} else {
		outcomes = make([]shaper.Outcome, 1)
		v.callWorker(ctx, first, &outcomes[0])
	}
	sent := 0
	for i := range outcomes {
		if outcomes[i].Result == shaper.ResultReturned {
			continue
		}
		sent++
		if first.departed.IsZero() {
			first.depart(began.Sub(first.slot)) // the worker did not call Depart: it sent at once
			first.departed = began
		}
	}
	if v.travelsAsBatch(jobs) {
		v.store.Metrics.CountBatch(v.Name, sent)
	}
	for _, job := range jobs[1:] {
		job.departed = first.departed
	}
	return outcomes
}
