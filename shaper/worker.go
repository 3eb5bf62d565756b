package shaper

import (
	"context"
	"errors"
	"time"
)

// Worker delivers jobs of one kind. Implementations must be safe for
// concurrent use: a dispatcher calls Deliver for many jobs at a time.
type Worker interface {
	// Deliver makes one attempt and returns its outcome. It is called at the attempt's slot, and not at all if the process is late for it. A worker
	// that needs time to get ready (to connect, say) calls [Attempt.Depart] right before it sends the first byte. If Depart fails, the slot has
	// passed, and the worker returns [Returned]. Depart may wait. ctx ends with the lease, and when a stopping dispatcher waits no longer. A panic
	// counts as a failed attempt.
	Deliver(ctx context.Context, attempt *Attempt) Outcome
}

// HandsOver is a [Worker] whose jobs run in other processes. If a dispatcher dies, its jobs that were never started elsewhere count no crash.
type HandsOver interface {
	Worker
	HandsOver()
}

// WorkerFunc makes a function a [Worker].
type WorkerFunc func(ctx context.Context, attempt *Attempt) Outcome

// Deliver calls f.
func (f WorkerFunc) Deliver(ctx context.Context, attempt *Attempt) Outcome { return f(ctx, attempt) }

// ErrLate is returned when a permit is void: its slot is more than permit_ttl ago.
var ErrLate = errors.New("shaper: the permit is void: its slot went by")

// Attempt is one delivery of a job: the job and the permit to send it once.
type Attempt struct {
	Bucket  string
	ID      string
	Flow    string
	Group   string              // of a bucket with groups, else as the job names it
	URL     string              // "" where the job names none
	Method  string              // "" where the job names none
	Headers map[string][]string // of the job: the values of each name, one line each
	Payload []byte

	// Own holds the job's flow's own delivery settings, as of the claim; nil if it has none. A job without a URL goes to Own's URL, or else to the
	// bucket's. Headers and secrets of Own are credentials that an operator configured. A worker uses them only towards the origin of that URL or,
	// without one, of the bucket's; the job's headers do not replace them.
	Own *OwnDelivery

	// Caller is the mark of the job's caller (see [CallerMark]), "" without one.
	Caller string

	// Enqueued is when the job was enqueued or redriven, by the clock of Redis; zero if unknown.
	Enqueued time.Time

	// AnswerBytes is how much of the response body to return in [Outcome.Answer], because a client waits for it or the bucket keeps it. 0: none is
	// wanted.
	AnswerBytes int64

	// Reserved is what the attempt is charged to budgets: the job's reservations, and the bucket's defaults for other units. It is nil where nothing
	// has budgets.
	Reserved Units

	// Once says that a client waits for the response, and decides itself whether to try again. Any response ends the job, unless the worker holds it.
	Once bool

	// Number counts the deliveries of the job from 1, including deliveries by dispatchers that crashed. It grows with each delivery.
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
	space  func() bool   // waits for its turn among departures; nil: it does not wait
	depart func(late time.Duration)
}

// NewAttempt makes an attempt with a permit, for tests of workers.
func NewAttempt(slot time.Time, ttl time.Duration, depart func(late time.Duration)) *Attempt {
	a := &Attempt{Number: 1}
	a.Permit(slot, ttl, depart)
	return a
}

// Permit gives the attempt a permit for slot, which is void ttl later. depart, if not nil, is called at the departure. A dispatcher calls Permit
// before the worker gets the attempt.
func (a *Attempt) Permit(slot time.Time, ttl time.Duration, depart func(late time.Duration)) {
	a.slot, a.ttl, a.depart = slot, ttl, depart
}

// Space makes [Attempt.Depart] call wait, which waits and reports whether the attempt may depart then. A dispatcher calls Space before the worker
// gets the attempt.
func (a *Attempt) Space(wait func() bool) { a.space = wait }

// SetTicket makes [Attempt.Ticket] return the result of ticket. A dispatcher calls Lend before the worker gets the attempt.
func (a *Attempt) SetTicket(ticket func() string) { a.ticket = ticket }

// Ticket returns the token with which another process starts and settles this attempt: see Leases in package shaper/dispatcher. It is "" outside of a
// dispatcher.
func (a *Attempt) Ticket() string {
	if a.ticket == nil {
		return ""
	}
	return a.ticket()
}

// Clock gives the attempt the clock that [Attempt.Now] reads. A dispatcher calls Clock before the worker gets the attempt.
func (a *Attempt) Clock(now func() time.Time) { a.clock = now }

// Now returns the time by the clock of Redis, which all dispatchers share. A worker uses it where a receiver checks the time. Outside of a dispatcher
// it is the time of this process.
func (a *Attempt) Now() time.Time {
	if a.clock == nil {
		return time.Now()
	}
	return a.clock()
}

// Slot returns the instant of the permit on this process's clock.
func (a *Attempt) Slot() time.Time { return a.slot }

// IsVoid reports whether the permit of the attempt is void. After the departure, a worker calls it before it resends a request that the downstream
// did not process.
func (a *Attempt) IsVoid() bool { return time.Since(a.slot) > a.ttl }

// Depart marks the departure. Call it once, with the connection ready, right before the first byte is sent. To keep departures even, it waits for
// some intervals if late attempts depart just before. It returns [ErrLate] when the permit is void; then nothing may be sent.
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
	ResultHeld                         // the downstream asked to wait: back to the head, no attempt counted, see Outcome.RetryAfter
	ResultDropped                      // failed for good, without a dead letter
	ResultHandedOver                   // another process starts and settles it, see HandedOver
)

var resultNames = [...]string{"", "done", "retry", "dead", "returned", "held", "dropped", "handed_over"}

func (r Result) String() string { return resultNames[r] }

// Results lists all results, for metrics.
func Results() []Result {
	return []Result{ResultDone, ResultRetry, ResultDead, ResultReturned, ResultHeld, ResultDropped, ResultHandedOver}
}

// Signal is what an attempt shows about the downstream, whatever becomes of the job. It moves the adaptive rate and the circuit breaker.
type Signal int

// The signals of an attempt.
const (
	SignalNone      Signal = iota // nothing: no request was sent, or it is not known
	SignalAccepted                // it works: any response but those below
	SignalThrottled               // it asks for less: 429 or 503
	SignalFailed                  // it does not work: a network error, a timeout, any other 5xx
)

// HiddenAddress stands in [Outcome.Detail] for an address of this network.
const HiddenAddress = "(address)"

// Outcome is the result of an attempt, as the worker reports it.
type Outcome struct {
	Result Result

	// Reason is one word from a closed list of the worker, such as "timeout"
	// or "http_500"; it becomes the reason of a dead letter.
	Reason string

	// Detail is a sentence for people: an error's text, without secrets. The caller of the job can read it.
	Detail string

	// Private is Detail with the addresses in place of HiddenAddress. Only the dispatcher's log and callers that may read the bucket get it. "":
	// Detail hides nothing.
	Private string

	// Status is the downstream's HTTP status, 0 if there was none, and Body the beginning of its response.
	Status int
	Body   string

	// Answer is the whole response, if [Attempt.AnswerBytes] asks for it.
	Answer *Answer

	// RetryAfter is how long the downstream asked to wait, 0 if it did not. With [ResultHeld] and [ResultDone] it holds all jobs of the scope: none
	// of them departs before.
	RetryAfter time.Duration

	// Local says, with [ResultReturned], that this host failed before a packet could reach the downstream: it had no resolver, no file descriptor or
	// no route. The job waits for RetryIn (0: one second), and any dispatcher tries it again. A dispatcher whose attempts mostly end this way claims
	// less.
	Local bool

	// RetryIn, with [ResultRetry], is how long until the job is tried again, if the worker knows it; no backoff is added. It is at most
	// [RetryPolicy.MaxBackoff]. 0: by the bucket's policy, and not before RetryAfter.
	RetryIn time.Duration

	// Signal is what the attempt shows about the downstream.
	Signal Signal

	// Used is what the attempt used of budgets. nil: as much as was reserved, and so are units that it does not name. Empty: nothing. An attempt that
	// was not sent is charged nothing.
	Used Units

	// Use is what the attempt used of a language model; nil: nothing. It is counted once by flow, caller, model and day, even without budgets. An
	// attempt that was not sent used nothing.
	Use *Use

	// Response is the downstream's response to which the use belongs, if other requests report its use too. nil: the use is of this attempt alone.
	Response *Response

	// Handover, only with [ResultHandedOver], lets the dispatcher watch a job that another process starts and settles.
	Handover *Handover

	// Gone says that the receiver wants no more jobs, as HTTP 410 does. It may disable the flow: see [OnGone].
	Gone bool
}

// Use is what one call of a language model used.
type Use struct {
	Model         string // as the request names it, cut to 200 bytes
	Input, Output int64  // tokens

	// Asked is the model that the caller requested, if the configuration mapped it to Model; else "".
	Asked string
}

// Response is a response of the downstream whose use several requests may report, such as a background response of a language model that a client
// polls. Whichever process sends them, the first outcome that reports the use corrects the earlier requests' charges to budgets. Unused amounts are
// returned as far as their charges still count; overruns are charged. Later outcomes are charged and count nothing. Redis keeps the last 10,000
// responses of a bucket.
type Response struct {
	ID    string // of the downstream; one of more than 200 bytes is not kept
	Model string // that was asked; "" it is not known
	Role  ResponseRole
}

// ResponseRole is how an attempt relates to a response.
type ResponseRole byte

// All roles.
const (
	ResponseBegins   ResponseRole = 'o' // the use is reported later; the attempt is charged its reservation, or Used
	ResponsePolled   ResponseRole = 'p' // it reports the use of an earlier attempt, and has none itself
	ResponseReread   ResponseRole = 'q' // the same, if the earlier attempt has already reported the use, unless that broke off
	ResponseReported ResponseRole = 'r' // it reports its own use and the use of all earlier attempts
)

// Handover is how a dispatcher watches a job that another process is to start.
type Handover struct {
	// Left reports whether the job was removed from the other queue without a start, and the outcome then. A dispatcher polls it until a process has
	// started the job. A nil Left is never called.
	Left func(ctx context.Context) (outcome Outcome, left bool, err error)
}

// Done returns the outcome of a delivery that the downstream accepted.
func Done(status int) Outcome {
	return Outcome{Result: ResultDone, Status: status, Signal: SignalAccepted}
}

// Retry returns the outcome of a failure that may pass.
func Retry(reason, detail string) Outcome {
	return Outcome{Result: ResultRetry, Reason: reason, Detail: detail}
}

// Dead returns the outcome of a permanent failure.
func Dead(reason, detail string) Outcome {
	return Outcome{Result: ResultDead, Reason: reason, Detail: detail}
}

// Returned returns the outcome of an attempt that sent nothing.
func Returned(reason string) Outcome { return Outcome{Result: ResultReturned, Reason: reason} }

// LocalFault returns the outcome of an attempt that sent nothing because this host failed: see [Outcome.Local].
func LocalFault(reason, detail string, retryIn time.Duration) Outcome {
	return Outcome{Result: ResultReturned, Reason: reason, Detail: detail, RetryIn: retryIn, Local: true}
}

// Dropped returns the outcome of a job that is not worth a dead letter.
func Dropped(reason, detail string) Outcome {
	return Outcome{Result: ResultDropped, Reason: reason, Detail: detail}
}

// HandedOver returns the outcome of an attempt that another process starts and settles, by the attempt's ticket. Until that start the dispatcher
// keeps the lease, without occupying a worker. left is [Handover.Left].
func HandedOver(left func(ctx context.Context) (outcome Outcome, isLeft bool, err error)) Outcome {
	return Outcome{Result: ResultHandedOver, Handover: &Handover{Left: left}}
}
