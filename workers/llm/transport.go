package llm

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
)

// Transport makes calls of the API at the pace of a bucket and within its budgets. Each call waits as a job of the bucket for its permit, and this
// process then sends it. No prompt and no response is in Redis. Calls of one Transport may be concurrent.
//
// It is an [http.RoundTripper], for the official clients: option.WithHTTPClient(&http.Client{Transport: t}). The proxy routes of `producer serve` use
// it, too.
type Transport struct {
	Permits *dispatcher.Permits
	Worker  *Worker // it sends the calls; a Worker may serve several Transports
	Bucket  string

	// Wait is how long a call waits until it is sent, unless its context ends earlier. 0 means [DefaultWait].
	Wait time.Duration

	// Prepare, if set, completes the job of a request before it waits, for example with its flow or its priority.
	Prepare func(*http.Request, *shaper.Job)
}

// DefaultWait is how long a call waits until it is sent by default.
const DefaultWait = time.Minute

// holdUnnamed is how long the bucket is held after a response that asks for less and names no time.
const holdUnnamed = time.Second

// NoAnswerError says that a call was sent and got no response. The provider may count it.
type NoAnswerError struct {
	JobID   string
	Outcome shaper.Outcome
}

func (e *NoAnswerError) Error() string {
	return fmt.Sprintf("the API did not answer job %q: %s: %s", e.JobID, e.Outcome.Reason, e.Outcome.Detail)
}

// LocalFaultError says that a call was not sent, because the host of this process could not connect to the API. The provider is not to blame.
type LocalFaultError struct {
	JobID   string
	Outcome shaper.Outcome
}

func (e *LocalFaultError) Error() string {
	return fmt.Sprintf("job %q was not sent to the API: %s", e.JobID, e.Outcome.Detail)
}

// Send waits for the permit of a job, calls the API and returns its response as soon as it begins. The caller reads it to its end and closes it. If the
// API asks for less (429, 503, 529), the bucket is held and the call waits for another slot; if there is no time for that, Send returns the response. If
// the API refuses stream_options that Tundish added, the call waits for another slot, too, and is sent without them. A call whose credentials were
// replaced meanwhile also waits for another slot, once.
//
// waits bounds the waiting only, and must end with ctx. When ctx ends, the call is cancelled and charged for what arrived. The job belongs to the ask:
// it has its Units, and no other payload than its Body. Its Headers, with canonical names, belong to Send.
//
// A [*NoAnswerError] means that the call was sent, a [*LocalFaultError] that this host could not send it. All other errors come from
// [dispatcher.Permits.Acquire]: nothing was sent.
func (t *Transport) Send(ctx, waits context.Context, job shaper.Job, ask *Ask) (*Answer, error) {
	delete(job.Headers, "Accept-Encoding") // the usage is read
	job.Payload = nil                      // the payload comes from the ask
	var last *Answer
	hasNewCredentials := false
	permit, err := t.Permits.Acquire(waits, job)
	for ; err == nil; err = permit.Again(waits) {
		answer, outcome := t.open(ctx, permit, ask)
		switch {
		case answer == nil && outcome.Local:
			permit.Settle(unsent(outcome))
			return nil, &LocalFaultError{JobID: permit.Receipt().ID, Outcome: outcome}
		case answer == nil && outcome.Result == shaper.ResultReturned: // nothing was sent
			permit.Settle(outcome)
		case answer == nil:
			permit.Settle(outcome)
			permit.Cancel()
			return nil, &NoAnswerError{JobID: permit.Receipt().ID, Outcome: outcome}
		case answer.refusesUsage(): // one more try, at a slot of its own
			answer.end()
			t.Worker.learned.refuses(ask.request, time.Now())
			ask, last = ask.withoutUsage(), answer
			outcome.Result = shaper.ResultHeld
			permit.Settle(outcome)
		case isReplaced(outcome) && !hasNewCredentials:
			hasNewCredentials = true
			answer.end()
			permit.Settle(outcome)
			last = answer
		case !waitsAfter(waits, &outcome):
			ask.came = nil // it is not sent again
			return answer, nil
		default:
			answer.end()
			permit.Settle(outcome)
			last = answer
		}
	}
	if last != nil {
		return last, nil
	}
	return nil, err //nolint:wrapcheck // it names the job
}

// unsent ends the job of a call that this host could not send. Its client decides whether to send it again.
func unsent(outcome shaper.Outcome) shaper.Outcome {
	dropped := shaper.Dropped(outcome.Reason, outcome.Detail)
	dropped.Used = shaper.Units{}
	return dropped
}

// waitsAfter reports whether a call is to wait for another slot after an error response: the API asks for less, and there is time.
func waitsAfter(waits context.Context, outcome *shaper.Outcome) bool {
	if outcome.Signal != shaper.SignalThrottled {
		return false
	}
	outcome.Result, outcome.RetryAfter = shaper.ResultHeld, cmp.Or(outcome.RetryAfter, holdUnnamed)
	end, isBounded := waits.Deadline()
	return !isBounded || time.Until(end) > outcome.RetryAfter
}

// open makes one attempt.
func (t *Transport) open(ctx context.Context, permit *dispatcher.Permit, ask *Ask) (*Answer, shaper.Outcome) {
	within, cancel := context.WithCancelCause(permit.Context())
	stop := context.AfterFunc(ctx, func() { cancel(ErrClientGone) })
	call, outcome := t.Worker.Open(within, permit.Attempt(), ask)
	if call == nil {
		stop()
		cancel(nil)
		return nil, outcome
	}
	return &Answer{Call: call, JobID: permit.Receipt().ID, permit: permit, cancel: cancel, stop: stop}, outcome
}

// Answer is the API's response to a call that had a permit. It is not safe for concurrent use.
type Answer struct {
	*Call

	JobID string

	permit *dispatcher.Permit
	cancel context.CancelCauseFunc
	stop   func() bool
	isOver bool
}

// end ends the call, and returns its outcome.
func (a *Answer) end() shaper.Outcome {
	a.isOver = true
	if a.broken == nil {
		a.cancel(ErrClientGone)
	}
	outcome := a.Call.Close()
	a.stop()
	a.cancel(nil)
	return outcome
}

// Close ends the job with its usage, and returns nil. If the response has not ended, Close cancels the call. Redis is updated in the background:
// [dispatcher.Permits.Close] waits for that.
func (a *Answer) Close() error {
	if a.isOver {
		return nil
	}
	outcome := a.end()
	go func() {
		a.permit.Settle(outcome)
		a.permit.Cancel() // a job that is held, and whose client has its response
	}()
	return nil
}
