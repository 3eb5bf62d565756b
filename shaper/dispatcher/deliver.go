package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// leased is a job that this process holds: from the claim until it is settled.
type leased struct {
	shaper.Attempt
	slot        time.Time // when to depart, on this process's monotonic clock
	permitTTL   time.Duration
	depart      func(late time.Duration)
	mark        string
	epoch       int64
	claim       string
	batch       int64 // its number, of a job that leaves together with others; else 0
	claimedAt   int64 // by the server's clock, microseconds
	attempts    int   // deliveries with an outcome so far
	maxAttempts int
	wakeLimit   time.Duration           // how late the delivery may wake for the slot
	closes      time.Time               // the end of the window, when the permit is void; zero: it has none
	cancel      context.CancelCauseFunc // of the delivery, once it runs
	departed    time.Time
	once        bool          // the first attempt ends the job
	expires     time.Duration // after its enqueue; 0 never
	waiter      string        // the channel of who waits for the result, "" nobody
	callback    string        // the first line of its body in Redis, if its end is to be told
	callbackURL string        // that it names, as failureURL
	failureURL  string
	lastChance  bool          // one more crash makes it poison
	handedOver  *handedOver   // another process is to start it, nil: it is not
	ended       chan struct{} // closed when Redis has taken the outcome, or it is lost; nil: nobody waits for that
	unreadable  error         // what is in Redis is no job of ours
	unsettled   error         // what its flow has of its own cannot be read
}

// readLeases reads the jobs of a claim: each, then what differs of those that were claimed before, then the jobs that died.
func (d *bucketLoop) readLeases(r *lua.Reader, claimID string, now int64) ([]*leased, error) {
	jobs := make([]*leased, 0, min(max(r.Int(), 0), maxClaim))
	for range cap(jobs) {
		job, err := d.readLease(r, claimID)
		if err != nil {
			return nil, err
		}
		job.claimedAt = now
		jobs = append(jobs, job)
	}
	for r.Left() > 0 {
		nth := r.Int()
		if nth == claimExpired || nth == claimTooOld {
			d.foundDead(nth, r.Text(), r.Text(), int(r.Int()))
			continue
		}
		if nth == claimBatch {
			first, size, number := r.Int(), r.Int(), r.Int()
			if first < 1 || size < 1 || first-1+size > int64(len(jobs)) {
				return nil, fmt.Errorf("claim from bucket %q: the answer has %d jobs and speaks of a batch of %d from number %d on", d.Name, len(jobs), size, first)
			}
			for _, job := range jobs[first-1 : first-1+size] {
				job.batch = number
			}
			continue
		}
		epoch, number, attempts := r.Int(), r.Int(), r.Int()
		if nth < 1 || int(nth) > len(jobs) {
			return nil, fmt.Errorf("claim from bucket %q: the answer has %d jobs and speaks of number %d", d.Name, len(jobs), nth)
		}
		job := jobs[nth-1]
		job.epoch, job.Number, job.attempts = epoch, int(number), int(attempts)
	}
	if r.Err() != nil {
		return nil, fmt.Errorf("claim from bucket %q: %w", d.Name, r.Err())
	}
	return jobs, nil
}

// readLease reads one job of a claim's answer.
func (d *bucketLoop) readLease(r *lua.Reader, claimID string) (*leased, error) {
	id, slot, body := r.Text(), r.Int(), r.Text()
	var flow, settings string
	if d.HasFlows() {
		flow, settings = r.Text(), r.Text()
	}
	if r.Err() != nil {
		return nil, fmt.Errorf("claim from bucket %q: %w", d.Name, r.Err())
	}
	job, err := codec.Open(body)
	if err != nil {
		job.Mark = codec.UnknownMark
	}
	switch d.Levels() { // also of a body that nobody can read
	case codec.LevelsFlows:
		job.Flow = flow
	case codec.LevelsGroups:
		job.Group, job.Flow, _ = codec.SplitPath(flow)
	}
	own, unsettled := d.ownDelivery(flow, settings)
	l := &leased{
		unreadable: err, unsettled: unsettled,
		Attempt: shaper.Attempt{
			Bucket: d.Name, ID: id, Flow: job.Flow, Group: job.Group, URL: job.URL, Method: job.Method, Headers: job.Headers,
			Own: own, Payload: job.Payload, Number: 1, Enqueued: codec.InstantOf(job.Enqueued),
			AnswerBytes: d.answerBytes(job.Waiter != "" || job.Callback != ""),
		},
		once: job.Once, expires: time.Duration(job.ExpiresIn) * time.Microsecond, waiter: job.Waiter,
		callback: job.Callback, callbackURL: job.CallbackURL, failureURL: job.FailureURL,
		slot: d.clock.local(slot), permitTTL: d.permitTTL,
		mark: job.Mark, epoch: 1, claim: claimID, maxAttempts: job.MaxAttempts,
		wakeLimit: d.wakeLate,
	}
	if l.maxAttempts == 0 {
		l.maxAttempts = d.Settings.Load().Retry.MaxAttempts
	}
	l.depart = func(late time.Duration) {
		l.departed = time.Now()
		d.store.Metrics.CountDeparture(d.Name, late)
	}
	return l, nil
}

// hold notes jobs as ours, so that the heartbeat keeps their leases. A job that
// is under way here already was taken back and came again: the older delivery
// has lost its lease.
func (d *bucketLoop) hold(jobs []*leased) {
	if len(jobs) == 0 { // none is a reason for a heartbeat
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, job := range jobs {
		if older := d.held[job.ID]; older != nil && older.cancel != nil {
			older.cancel(errLeaseLost)
		}
		d.held[job.ID] = job
	}
	d.begin(&d.beat)
}

// start begins the delivery of jobs, each request in its own goroutine, which sleeps
// until the slot. It returns how many requests these are.
//
// The stack of a goroutine begins small, and to grow it costs more than most steps of a delivery. So the functions on the way from
// here to net/http keep little on the stack: outcomes of rare cases are made in functions of their own.
func (d *bucketLoop) start(jobs []*leased) int {
	if len(jobs) == 0 {
		return 0
	}
	d.hold(jobs)
	requests := requestsOf(jobs)
	d.mu.Lock()
	d.running += len(requests)
	d.mu.Unlock()
	for _, jobs := range requests {
		d.deliveries.Go(func() {
			outcomes := d.deliver(jobs)
			d.release()
			d.delivered(jobs, outcomes)
		})
	}
	return len(requests)
}

// delivered hands over the outcomes of a request.
func (d *bucketLoop) delivered(jobs request, outcomes []shaper.Outcome) {
	if outcomes[0].Result == shaper.ResultHandedOver {
		d.handOver(jobs[0], outcomes[0])
		return
	}
	settlements := make([]*settlement, len(jobs))
	for i, job := range jobs {
		settlements[i] = d.settlementOf(job, outcomes[i])
	}
	d.settler.Add(settlements...)
}

// release frees a worker, and wakes the loop if it waits for one.
func (d *bucketLoop) release() {
	d.mu.Lock()
	d.running--
	starved := d.starved
	d.starved = false
	d.mu.Unlock()
	if starved {
		d.nudge()
	}
}

// deliver waits for the slot and has the worker make the attempt. It returns an outcome for each job.
func (d *bucketLoop) deliver(jobs request) []shaper.Outcome {
	first := jobs[0]
	ctx, cancel := context.WithCancelCause(d.life)
	defer cancel(nil)
	d.mu.Lock()
	jobs.withCancel(cancel)
	for _, job := range jobs {
		if d.held[job.ID] != job {
			job.cancel(errLeaseLost)
		}
	}
	d.mu.Unlock()

	if wait := time.Until(first.slot); wait > 0 {
		sleep(ctx, wait)
	}
	if ctx.Err() != nil {
		return jobs.returned("stopped")
	}
	unsent := jobs.unsent(time.Since(first.slot) > min(first.wakeLimit, first.validFor()))
	if unsent == nil {
		return d.attempt(ctx, jobs)
	}
	return d.attemptRest(ctx, jobs, unsent)
}

// unsent is the outcomes of jobs that are not sent, nil if all of them are. Those of the others have no result yet.
func (jobs request) unsent(late bool) []shaper.Outcome {
	var outcomes []shaper.Outcome
	note := func(i int, outcome shaper.Outcome) {
		if outcomes == nil {
			outcomes = make([]shaper.Outcome, len(jobs))
		}
		outcomes[i] = outcome
	}
	for i, job := range jobs {
		switch {
		case job.unreadable != nil:
			note(i, shaper.Dead("unreadable", job.unreadable.Error()))
		case late:
			note(i, shaper.Returned("late"))
		case jobs[0].unsettled != nil: // the settings of the flow, which stand with its first job
			note(i, shaper.Retry(shaper.ReasonFlowSettings, jobs[0].unsettled.Error()))
		}
	}
	return outcomes
}

// attemptRest has the worker make the attempt at the jobs that have no outcome yet.
func (d *bucketLoop) attemptRest(ctx context.Context, jobs request, outcomes []shaper.Outcome) []shaper.Outcome {
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
	answers := d.attempt(ctx, rest)
	for n, i := range places {
		outcomes[i] = answers[n]
	}
	return outcomes
}

// interrupt cancels what still runs and returns how many that were.
func (d *bucketLoop) interrupt() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	count := 0
	for _, job := range d.held {
		if job.cancel != nil {
			job.cancel(errStopped)
			count++
		}
	}
	return count
}
