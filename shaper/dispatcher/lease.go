package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
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
	batch       int64        // its number, of a job that leaves together with others; else 0
	claimedAt   int64        // by the server's clock, microseconds
	charged     string       // of budgets, as claim.lua told it; "": nothing
	counted     shaper.Units // of that, what metrics have as reserved; nil where nothing is charged
	attempts    int          // deliveries with an outcome so far
	maxAttempts int
	wakeLimit   time.Duration           // how late the delivery may wake for the slot
	closes      time.Time               // the end of the window, when the permit is void; zero: it has none
	cancel      context.CancelCauseFunc // of the delivery, once it runs
	arrived     time.Time               // when the claim's answer did
	woken       time.Time               // when the delivery began, at the slot or late
	departed    time.Time
	traceID     string        // of the attempt, if it is sampled
	expires     time.Duration // after its enqueue; 0 never
	waiter      string        // the channel of the waiter for the result, "" none
	sender      string        // the channel of the process that sends the job itself, "" none
	callback    string        // the first line of its body in Redis, if its end is to be told
	callbackURL string        // that it names, as failureURL
	failureURL  string
	lastChance  bool          // one more crash makes it poison
	handedOver  *handedOver   // another process is to start it, nil: it is not
	ended       chan struct{} // closed when Redis has taken the outcome, or it is lost; nil: no caller waits for that
	unreadable  error         // what is in Redis is no job of ours
	unsettled   error         // what its flow has of its own cannot be read
}

// owner is the claim as Redis has it with the job.
func (l *leased) owner() string {
	if l.batch == 0 {
		return l.claim
	}
	return fmt.Sprint(l.claim, "#", l.batch)
}

// validFor is how long after its slot the job may depart: no permit of a window lasts beyond its end.
func (l *leased) validFor() time.Duration {
	if l.closes.IsZero() {
		return l.permitTTL
	}
	return min(l.permitTTL, l.closes.Sub(l.slot)-time.Nanosecond)
}

// lateness is why the delivery began too late for its slot; "" if it did not.
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

// departs notes that a job departs. The lateness that is counted is the process's own: not what the worker took to connect.
func (c *bucketConn) departs(job *leased) {
	job.departed = time.Now()
	c.store.Metrics.CountDeparture(c.Name, job.woken.Sub(job.slot), job.traceID)
}

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

// withCancel lets each job of the request be cancelled by itself. The request ends with the last one: as long as one job is ours, its
// outcome counts. The caller holds the mutex of the leases, and so does each call that cancels.
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

// unsent is the outcomes of jobs that are not sent, nil if all of them are. Those of the others have no result yet. late is why the request is
// late, "" if it is not.
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
		case jobs[0].unsettled != nil: // the settings of the flow, which stand with its first job
			note(i, shaper.Retry(shaper.ReasonFlowSettings, jobs[0].unsettled.Error()))
		}
	}
	return outcomes
}
