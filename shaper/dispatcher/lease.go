package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// leased is a job that this process holds, from the claim until it is settled.
type leased struct {
	shaper.Attempt
	slot        time.Time // when to depart, on this process's monotonic clock
	permitTTL   time.Duration
	depart      func(late time.Duration)
	mark        string
	epoch       int64
	claim       string
	batch       int64        // the number of its batch in the claim; 0: it is sent alone
	claimedAt   int64        // by the server's clock, microseconds
	charged     string       // to budgets, as claim.lua returned it; "": nothing
	counted     shaper.Units // the part of charged that metrics count as reserved; nil if nothing is charged
	attempts    int          // deliveries with an outcome so far
	maxAttempts int
	wakeLimit   time.Duration           // how late the delivery may wake for the slot
	closes      time.Time               // the end of the window, when the permit is void; zero: none
	cancel      context.CancelCauseFunc // of the delivery, once it runs
	arrived     time.Time               // when the claim's reply arrived
	woken       time.Time               // when the delivery began, at the slot or late
	departed    time.Time
	traceID     string        // of the attempt, if it is sampled
	expires     time.Duration // after its enqueue; 0: never
	waiter      string        // the channel of the waiter for the result; "": none
	sender      string        // the channel of the process that sends the job itself; "": none
	callback    string        // the first line of its body in Redis, if a callback is due
	callbackURL string        // that it names, as does failureURL
	failureURL  string
	lastChance  bool          // one more crash makes it poison
	handedOver  *handedOver   // set while another process is to start it
	ended       chan struct{} // closed when Redis has taken the outcome, or it is lost; nil: no caller waits for that
	unreadable  error         // why the text in Redis cannot be read as a job
	unsettled   error         // why its flow's own settings cannot be read
}

// owner returns the claim as Redis stores it with the job.
func (l *leased) owner() string {
	if l.batch == 0 {
		return l.claim
	}
	return fmt.Sprint(l.claim, "#", l.batch)
}

// validFor returns how long after its slot the job may depart. No permit lasts beyond the end of its window.
func (l *leased) validFor() time.Duration {
	if l.closes.IsZero() {
		return l.permitTTL
	}
	return min(l.permitTTL, l.closes.Sub(l.slot)-time.Nanosecond)
}

// lateness returns why the delivery began too late for its slot, "" if it did not.
func (l *leased) lateness() string {
	limit := min(l.wakeLimit, l.validFor())
	switch {
	case l.woken.Sub(l.slot) <= limit:
		return ""
	case l.arrived.Sub(l.slot) > limit:
		return shaper.ReasonLateRedis
	}
	return shaper.ReasonLateProcess
}

// departs records the departure. The lateness it counts is the process's own, without the time the worker took to connect.
func (c *bucketConn) departs(job *leased) {
	job.departed = time.Now()
	c.store.Metrics.CountDeparture(c.Name, job.woken.Sub(job.slot), job.traceID)
}

// request holds the jobs that one request carries: a batch, or one job.
type request []*leased

// requestsOf groups the jobs of each batch, which follow each other, into one request.
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

// withCancel lets each job of the request be cancelled separately. The request is cancelled with its last job: while one job is ours, its outcome
// counts. The caller holds the mutex of the leases, and so does each call of cancel.
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

// returned returns outcomes for jobs that are not sent.
func (jobs request) returned(reason string) []shaper.Outcome {
	outcomes := make([]shaper.Outcome, len(jobs))
	for i := range outcomes {
		outcomes[i] = shaper.Returned(reason)
	}
	return outcomes
}

// unsent returns the outcomes of jobs that are not sent, nil if all are. The others have a zero outcome. late is why the request is late, "" if it is
// not.
func (jobs request) unsent(late string) []shaper.Outcome {
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
		case late != "":
			note(i, shaper.Returned(late))
		case jobs[0].unsettled != nil: // the settings of the flow, which are kept with its first job
			note(i, shaper.Retry(shaper.ReasonFlowSettings, jobs[0].unsettled.Error()))
		}
	}
	return outcomes
}
