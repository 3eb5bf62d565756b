package shaper

import (
	"context"
	"errors"
	"time"
)

// Worker delivers jobs of one kind. Implementations must be safe for
// concurrent use: a dispatcher calls Deliver for many jobs at a time.
type Worker interface {
	// Deliver makes one attempt and says how it ended. It is called at the
	// attempt's slot, and not at all if the process was late for that. A worker that needs time to get ready (to connect, say)
	// calls [Attempt.Depart] right before the first byte leaves, and returns
	// [Returned] if that fails: the slot went by. Depart may wait. ctx ends with the lease and
	// when a stopping dispatcher waits no longer. A panic counts as a failed
	// attempt.
	Deliver(ctx context.Context, attempt *Attempt) Outcome
}

// HandsOver is a [Worker] whose jobs run in other processes. If a dispatcher dies, a job of it that never started elsewhere has not
// crashed it, and counts no crash.
type HandsOver interface {
	Worker
	HandsOver()
}

// WorkerFunc makes a function a [Worker].
type WorkerFunc func(ctx context.Context, attempt *Attempt) Outcome

// Deliver calls f.
func (f WorkerFunc) Deliver(ctx context.Context, attempt *Attempt) Outcome { return f(ctx, attempt) }

// ErrLate says that a permit is void: its slot lies more than permit_ttl back.
var ErrLate = errors.New("shaper: the permit is void: its slot went by")

// Attempt is one delivery of a job: the job and the permit to send it once.
type Attempt struct {
	Bucket  string
	ID      string
	Flow    string
	Group   string              // of a bucket with groups, else as the job says
	URL     string              // "" where the job names none
	Method  string              // "" where the job names none
	Headers map[string][]string // of the job: the values of each name, one line each
	Payload []byte

	// Own is what the job's flow has of its own, as it was at the claim; nil where it
	// has nothing. Its URL is where a job goes that names none, before the bucket's. Its
	// headers and secrets are credentials that an operator configured: a worker uses
	// them only towards the origin of that URL or, without one, of the bucket's, and the
	// job's headers do not replace them.
	Own *OwnDelivery

	// Caller is the mark of the job's caller (see [CallerMark]), "" of a job without one.
	Caller string

	// Enqueued is when the job was enqueued, or redriven, by the clock of Redis; zero where
	// that is not known.
	Enqueued time.Time

	// AnswerBytes is how much of the answer's body is wanted: a client waits for the answer, or it is kept. A worker whose
	// downstream answers puts it into [Outcome.Answer] then. 0: it is not wanted.
	AnswerBytes int64

	// Reserved is what the attempt is charged to budgets: what the job reserves, and what its bucket says of units that it does not name.
	// nil where nothing has budgets.
	Reserved Units

	// Once says that a client waits for the answer to this attempt, and decides whether to try again: any response is the end of the job,
	// except one after which a worker holds it.
	Once bool

	// Number counts the deliveries of the job from 1, those of dispatchers
	// that crashed included, so that it grows with each.
	Number int

	// InDoubt says that an earlier attempt may have taken effect: it ended without a response, or with a 408 or a 5xx, or its dispatcher
	// crashed.
	InDoubt bool

	// Epoch is the number of the claim. Of two attempts at a job, the later one has the higher epoch.
	Epoch int64

	ticket func() string
	clock  func() time.Time
	slot   time.Time     // when to depart, on this process's monotonic clock
	ttl    time.Duration // how late it may be
	space  func() bool   // waits for its turn among departures; nil: it waits for nothing
	depart func(late time.Duration)
}

// NewAttempt makes an attempt with a permit, for tests of workers.
func NewAttempt(slot time.Time, ttl time.Duration, depart func(late time.Duration)) *Attempt {
	a := &Attempt{Number: 1}
	a.Permit(slot, ttl, depart)
	return a
}

// Permit gives the attempt a permit for slot, which is void ttl later. depart, if not nil, is told of the
// departure. A dispatcher calls Permit before the worker gets the attempt.
func (a *Attempt) Permit(slot time.Time, ttl time.Duration, depart func(late time.Duration)) {
	a.slot, a.ttl, a.depart = slot, ttl, depart
}

// Space has [Attempt.Depart] wait as wait does, which reports whether the attempt may depart then. A dispatcher calls Space before the worker
// gets the attempt.
func (a *Attempt) Space(wait func() bool) { a.space = wait }

// Lend lets [Attempt.Ticket] return what ticket makes. A dispatcher calls Lend before the worker gets the attempt.
func (a *Attempt) Lend(ticket func() string) { a.ticket = ticket }

// Ticket returns the text with which another process starts and settles this attempt: see package
// shaper/dispatcher, Leases. It is "" outside of a dispatcher.
func (a *Attempt) Ticket() string {
	if a.ticket == nil {
		return ""
	}
	return a.ticket()
}

// Clock gives the attempt the clock that [Attempt.Now] reads. A dispatcher calls Clock before the worker gets the attempt.
func (a *Attempt) Clock(now func() time.Time) { a.clock = now }

// Now returns the time by the clock of Redis, which all dispatchers have in common. A worker writes it where a receiver checks the time. Outside of a
// dispatcher it is the time of this process.
func (a *Attempt) Now() time.Time {
	if a.clock == nil {
		return time.Now()
	}
	return a.clock()
}

// Slot is the instant of the permit on this process's clock.
func (a *Attempt) Slot() time.Time { return a.slot }

// Depart marks the departure: call it once, with the connection ready, right
// before the first byte leaves. It keeps departures even: if others that were late
// depart just before, it waits for some intervals. It returns [ErrLate] when the permit
// is void; then nothing may be sent.
func (a *Attempt) Depart() error {
	if time.Since(a.slot) > a.ttl || a.space != nil && !a.space() {
		return ErrLate
	}
	late := time.Since(a.slot)
	if late > a.ttl {
		return ErrLate
	}
	if a.depart != nil {
		a.depart(late)
	}
	return nil
}

// Result is how an attempt ended.
type Result int

// The results of an attempt.
const (
	ResultDone       Result = iota + 1 // delivered
	ResultRetry                        // failed, worth another try
	ResultDead                         // failed for good
	ResultReturned                     // not sent: back to the head of the queue, no attempt counted
	ResultHeld                         // the downstream named a time to wait for: back to the head, no attempt counted, see Outcome.RetryAfter
	ResultDropped                      // failed for good, and leaves no dead letter
	ResultHandedOver                   // another process starts and settles it, see HandedOver
)

var resultNames = [...]string{"", "done", "retry", "dead", "returned", "held", "dropped", "handed_over"}

func (r Result) String() string { return resultNames[r] }

// Results lists all results, for metrics.
func Results() []Result {
	return []Result{ResultDone, ResultRetry, ResultDead, ResultReturned, ResultHeld, ResultDropped, ResultHandedOver}
}

// Signal is what an attempt says of the downstream, whatever becomes of the job. It moves the adaptive
// rate and the circuit breaker.
type Signal int

// The signals of an attempt.
const (
	SignalNone      Signal = iota // nothing: no request was sent, or it is not known
	SignalAccepted                // it works: any answer but those below
	SignalThrottled               // it asks for less: 429 or 503
	SignalFailed                  // it does not work: a network error, a timeout, any other 5xx
)

// HiddenAddress stands in [Outcome.Detail] for an address of this network.
const HiddenAddress = "(address)"

// Outcome is what a worker says of an attempt.
type Outcome struct {
	Result Result

	// Reason is one word from a closed list of the worker, such as "timeout"
	// or "http_500"; it becomes the reason of a dead letter.
	Reason string

	// Detail is a sentence for people: an error's text, without secrets. Who enqueued the job reads it.
	Detail string

	// Private is Detail as only the log of the dispatcher and those have it who may read the bucket: with addresses in place of
	// HiddenAddress. "": Detail has it all.
	Private string

	// Status is the downstream's HTTP status, 0 if there was none, and Body
	// the beginning of its answer.
	Status int
	Body   string

	// Answer is the whole answer, where [Attempt.AnswerBytes] asks for it.
	Answer *Answer

	// RetryAfter is how long the downstream asked to wait, 0 if it did not. With [ResultHeld], and with [ResultDone], it holds for all
	// jobs of the scope: none of them leaves before.
	RetryAfter time.Duration

	// Local says, with [ResultReturned], that the host of this process failed before a packet could reach the downstream: it had no resolver, no
	// file descriptor or no route. The job waits for RetryIn, a second if that is 0, and any dispatcher tries it again. A dispatcher on which most
	// attempts end so claims less.
	Local bool

	// RetryIn, with [ResultRetry], is how long until the job is tried again, where the worker knows it: no backoff makes it longer. At most
	// [RetryPolicy.MaxBackoff]. 0: as the policy of the bucket says, and not before RetryAfter.
	RetryIn time.Duration

	// Signal is what the attempt says of the downstream.
	Signal Signal

	// Used is what the attempt has used of budgets. nil: as much as was reserved. Of a unit that it does not name too. An empty one: nothing.
	// An attempt that was not sent is charged nothing.
	Used Units

	// Use is what the attempt has used of a language model. nil: none. It is counted once, by flow, caller, model and day, also where
	// nothing has budgets. An attempt that was not sent has used none.
	Use *Use

	// Response is the response of the downstream to which the use belongs, where other requests report its use, too. nil: the use is of this
	// attempt alone.
	Response *Response

	// Handover is that of a job that another process starts and settles. Only with [ResultHandedOver].
	Handover *Handover

	// Gone says that the receiver wants no jobs any more, as HTTP 410 does. It may disable the flow: see [OnGone].
	Gone bool
}

// Use is what one call of a language model has used.
type Use struct {
	Model         string // as the request names it; of a longer name 200 bytes are kept
	Input, Output int64  // tokens

	// Asked is the model that the caller asked, where the configuration mapped it to Model; else "".
	Asked string
}

// Response is a response of the downstream whose use several requests may report, such as one that a language model makes in the background and a
// client polls. Whichever process sends them, the first outcome that reports the use settles what the requests before it were charged to budgets:
// what they have not used is given back as far as their charges still count, and what they used in addition is charged. Later outcomes are charged
// and count nothing. Redis keeps the last 10,000 responses of a bucket.
type Response struct {
	ID    string // of the downstream; one of more than 200 bytes is not kept
	Model string // that was asked; "" it is not known
	Role  ResponseRole
}

// ResponseRole is what an attempt has to do with a response.
type ResponseRole byte

// All roles.
const (
	ResponseBegins   ResponseRole = 'o' // the use comes later; the attempt is charged what it reserved, or Used
	ResponsePolled   ResponseRole = 'p' // it reports the use of an attempt before it, and has none itself
	ResponseReread   ResponseRole = 'q' // the same, where the attempt before it has reported the use already, unless that broke off
	ResponseReported ResponseRole = 'r' // it reports its own use, with that of all attempts before it
)

// Handover is how a dispatcher looks after a job that another process is to start.
type Handover struct {
	// Left reports whether the job has left the other queue without a start, and what becomes of it then. A dispatcher asks
	// again and again, until a process has started the job. A nil Left is never asked.
	Left func(ctx context.Context) (outcome Outcome, left bool, err error)
}

// Done is the outcome of a delivery that the downstream took.
func Done(status int) Outcome {
	return Outcome{Result: ResultDone, Status: status, Signal: SignalAccepted}
}

// Retry is the outcome of a failure that may pass.
func Retry(reason, detail string) Outcome {
	return Outcome{Result: ResultRetry, Reason: reason, Detail: detail}
}

// Dead is the outcome of a failure that stays.
func Dead(reason, detail string) Outcome {
	return Outcome{Result: ResultDead, Reason: reason, Detail: detail}
}

// Returned is the outcome of an attempt that sent nothing.
func Returned(reason string) Outcome { return Outcome{Result: ResultReturned, Reason: reason} }

// LocalFault is the outcome of an attempt that sent nothing because the host of this process failed: see [Outcome.Local].
func LocalFault(reason, detail string, retryIn time.Duration) Outcome {
	return Outcome{Result: ResultReturned, Reason: reason, Detail: detail, RetryIn: retryIn, Local: true}
}

// Dropped is the outcome of a job that is not worth a dead letter.
func Dropped(reason, detail string) Outcome {
	return Outcome{Result: ResultDropped, Reason: reason, Detail: detail}
}

// HandedOver is the outcome of an attempt that another process starts and settles, by the attempt's ticket. Until that start the
// dispatcher keeps the lease, and no worker is occupied. left is [Handover.Left].
func HandedOver(left func(ctx context.Context) (outcome Outcome, isLeft bool, err error)) Outcome {
	return Outcome{Result: ResultHandedOver, Handover: &Handover{Left: left}}
}
