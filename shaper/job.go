package shaper

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tundish-io/tundish/admission"
)

// Bounds of a job.
const (
	MaxFlowBytes = 256
	MaxDelay     = 366 * 24 * time.Hour
	MaxNotBefore = 10 * 366 * 24 * time.Hour // of NotBefore, from now
	MaxCost      = 1_000_000
	MaxTries     = 1000
)

// MaxIDBytes bounds the id of a job.
const MaxIDBytes = 255

// WantID says what the id of a job may be.
const WantID = "want 1 to 255 visible ASCII characters, such as order-17 or partition:1/offset:24, and neither . nor .."

// ValidID reports whether s may be a job's id: visible ASCII, so that scripts can separate ids by spaces. It refuses "." and "..", which HTTP clients
// resolve in paths.
func ValidID(s string) bool {
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	return s != "" && len(s) <= MaxIDBytes && !strings.ContainsFunc(s, invisible) && s != "." && s != ".."
}

var bundlePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// ValidBundleID reports whether s may be the id of a bundle.
func ValidBundleID(s string) bool { return bundlePattern.MatchString(s) }

// IsRelative reports whether the URL of a job is a path or a query below the URL of its bucket or flow, such as "/charges?limit=1". Such a URL names
// no receiver.
func IsRelative(jobURL string) bool { return jobURL != "" && (jobURL[0] == '/' || jobURL[0] == '?') }

// NamesReceiver reports whether the URL of a job names its receiver, without the bucket or flow.
func NamesReceiver(jobURL string) bool { return jobURL != "" && !IsRelative(jobURL) }

// Job is one unit of work to enqueue. All fields but Bucket are optional; a worker may require others.
type Job struct {
	Bucket string // the bucket to enqueue into

	// ID names the job; the same ID is the same job. It has 1 to 255 visible ASCII characters: see ValidID. If it is empty, Enqueue makes a UUIDv7.
	ID string

	Flow    string              // up to 256 bytes of UTF-8, never parsed; see [FlowSettings]
	Group   string              // above the flow, likewise; see [GroupSettings]
	URL     string              // the receiver; empty means the bucket's, and a path or a query (see IsRelative) is appended to that
	Method  string              // HTTP method; empty means POST
	Headers map[string][]string // sent with the delivery: one header line per value
	Payload []byte              // what is delivered; may be empty if the worker permits that

	// Priority decides two things. A job of a low priority is refused while the bucket is fuller than [Bucket.Shed] allows. Within a flow, or a
	// bucket without flows, jobs of a higher priority depart first: see [Bucket.PriorityAging]. The turns of flows ignore priorities. "" means
	// normal.
	Priority Priority

	Cost        int64         // charged to the limits; 0 means 1
	Units       Units         // reserved of [Budgets] until the job is settled; for other units, the bucket's default
	Delay       time.Duration // earliest departure, from now; not with NotBefore
	NotBefore   time.Time     // earliest departure; at most MaxNotBefore from now
	MaxAttempts int           // most deliveries; 0 means the bucket's bound

	// ExpiresIn is how long after its enqueue, or after a redrive, the job is worth sending, by the clock of Redis. It is in whole microseconds, at
	// most MaxDelay; 0 means forever. A job that still waits then, or waits for its next attempt, takes no more slots. It becomes a dead letter
	// ([CauseExpired]) within seconds, even while its bucket or flow is paused. This needs a running dispatcher of the bucket.
	ExpiresIn time.Duration

	// MaxWait refuses the job ([ReasonWaitTooLong]) if it is not expected to depart within this time, or if that is unknown because its bucket or
	// flow is paused. 0 accepts any wait. It is not stored.
	MaxWait time.Duration

	// Once says that the first attempt ends the job, and leaves no dead letter: its response or error is the result. A failed attempt ends the job as
	// [StateDropped]. It is for a caller that waits for the result and decides itself whether to retry. The job waits out a hold that ends before it
	// expires. After a crash of a dispatcher it is delivered again, as any other job.
	Once bool

	// First makes the job depart before all others of its flow, even earlier or due ones, except for waiting critical jobs and earlier jobs with
	// First. Its Priority is critical. It is for jobs that a client waits for.
	First bool

	// CallbackURL and FailureURL receive the outcome of the job, if its bucket has [Callbacks]; empty means the bucket's URLs. CallbackURL is called
	// if the job is done, FailureURL if it is dead. Without any FailureURL, CallbackURL receives both. A job that is cancelled, purged or dropped by
	// an operator has no callback.
	CallbackURL string
	FailureURL  string

	// Bundle names the job's [Bundle], which must be open.
	Bundle string

	// Caller is the caller of the job. Another caller of the bucket neither sees the job nor may use its id. "" is no caller. Redis keeps a short
	// form of it, see [CallerMark].
	Caller string

	// Identity is the identity of the enqueuing caller, for the limits. It is not stored.
	Identity admission.Identity
}

// Priority is the importance of a job.
type Priority string

// The priorities, the most important first.
const (
	PriorityCritical Priority = "critical"
	PriorityHigh     Priority = "high"
	PriorityNormal   Priority = "normal"
	PriorityLow      Priority = "low"
)

// Priorities lists them, the most important first.
func Priorities() []Priority {
	return []Priority{PriorityCritical, PriorityHigh, PriorityNormal, PriorityLow}
}

// FieldError is one fault of a job, with the field named as in the API.
type FieldError struct {
	Field  string
	Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Validate reports every fault of the job, joined, each a [*FieldError]; or nil. The worker checks what it needs of the URL and the headers.
func (j *Job) Validate(maxPayload int64) error {
	var errs []error
	fail := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if j.ID != "" && !ValidID(j.ID) {
		fail("id", WantID)
	}
	if len(j.Flow) > MaxFlowBytes || !utf8.ValidString(j.Flow) {
		fail("flow", "want at most %d bytes of UTF-8", MaxFlowBytes)
	}
	if len(j.Group) > MaxFlowBytes || !utf8.ValidString(j.Group) {
		fail("group", "want at most %d bytes of UTF-8", MaxFlowBytes)
	}
	if j.Bundle != "" && !ValidBundleID(j.Bundle) {
		fail("bundle", "want 1 to 128 letters, digits, - and _")
	} else if j.Bundle != "" && j.Once {
		fail("bundle", "a job that is sent once is in no bundle: wait for its result")
	}
	j.checkText(fail)
	if int64(len(j.Payload)) > maxPayload {
		fail("payload", "has %d bytes, at most %d are taken", len(j.Payload), maxPayload)
	}
	if j.Priority != "" && !slices.Contains(Priorities(), j.Priority) {
		fail("priority", "%q: want critical, high, normal or low", j.Priority)
	}
	if j.First && j.Priority != PriorityCritical {
		fail("priority", "%q: a job that leaves before all others is critical", j.Priority)
	}
	if j.Cost < 0 || j.Cost > MaxCost {
		fail("cost", "%d: want 1 to %d", j.Cost, MaxCost)
	}
	if err := j.Units.Validate(); err != nil {
		fail("cost", "%v", err)
	}
	if j.Delay < 0 || j.Delay > MaxDelay {
		fail("delay", "%s: want 0s to %s", j.Delay, MaxDelay)
	}
	if latest := time.Now().Add(MaxNotBefore); !j.NotBefore.IsZero() && j.NotBefore.UTC().Year() < 1970 {
		fail("not_before", "year %d: want 1970 or later", j.NotBefore.UTC().Year())
	} else if j.NotBefore.After(latest) {
		fail("not_before", "%s is more than 10 years ahead: want %s or earlier", j.NotBefore.UTC().Format(time.RFC3339), latest.UTC().Format(time.RFC3339))
	}
	if j.Delay != 0 && !j.NotBefore.IsZero() {
		fail("not_before", "is given together with delay: choose one")
	}
	if j.ExpiresIn < 0 || j.ExpiresIn > MaxDelay || j.ExpiresIn%time.Microsecond != 0 {
		fail("expires_in", "%s: want 1µs to %s, in whole microseconds", j.ExpiresIn, MaxDelay)
	}
	if j.MaxWait < 0 || j.MaxWait > MaxDelay {
		fail("max_wait", "%s: want 0s (any wait) to %s", j.MaxWait, MaxDelay)
	}
	if j.MaxAttempts < 0 || j.MaxAttempts > MaxTries {
		fail("max_attempts", "%d: want 1 to %d", j.MaxAttempts, MaxTries)
	}
	return errors.Join(errs...)
}

// checkText refuses bytes that are not UTF-8: JSON would alter them.
func (j *Job) checkText(fail func(field, format string, args ...any)) {
	const reason = "is not UTF-8, and would be delivered altered: percent-encode or remove the bytes that are not"
	if !utf8.ValidString(j.URL) {
		fail("url", reason)
	}
	if !utf8.ValidString(j.Method) {
		fail("method", reason)
	}
	if !utf8.ValidString(j.CallbackURL) {
		fail("callback_url", reason)
	}
	if !utf8.ValidString(j.FailureURL) {
		fail("failure_url", reason)
	}
	if len(j.Headers) == 0 { // the usual case; sorting an empty map would still allocate
		return
	}
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		field := "headers." + strings.ToValidUTF8(name, "?")
		if !utf8.ValidString(name) || slices.ContainsFunc(j.Headers[name], func(value string) bool { return !utf8.ValidString(value) }) {
			fail(field, reason)
		} else if len(j.Headers[name]) == 0 {
			fail(field, "has no value: give one or more, or leave it out")
		}
	}
}

// State is the state of a job, as in the API.
type State string

// The states of a job.
const (
	StateScheduled State = "scheduled" // waits for its time, never tried
	StateQueued    State = "queued"
	StateInFlight  State = "in_flight"
	StateRetrying  State = "retrying" // waits for its next try
	StateDone      State = "done"
	StateDead      State = "dead"
	StateCancelled State = "cancelled"
	StateDropped   State = "dropped" // by an operator, from the dead letters, or by its worker
)
