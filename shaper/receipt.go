package shaper

import (
	"time"

	"github.com/tundish-io/tundish/admission"
)

// Receipt is the response for one job. Refusal is nil if the job was enqueued.
type Receipt struct {
	ID        string
	Bucket    string
	Flow      string    // as the bucket's FlowSettings name it, else as the job does
	Group     string    // as the bucket's GroupSettings name it, else as the job does
	State     State     // of an enqueued job: queued or scheduled; of a duplicate or with ReasonIDEnded: the state of the existing job
	Duplicate bool      // a job with the id exists: no second job, no quota used
	Position  int64     // how many jobs of its flow are ahead of it now
	ETA       time.Time // estimated departure, on the clock of Redis; zero while the bucket or the flow is paused
	Refusal   *Refusal
	Decisions []admission.Decision // of the bucket's limits, in order; none for a duplicate
}

// Reason is why a job was refused.
type Reason string

// The reasons of a refusal.
const (
	ReasonLimit         Reason = "limit-exceeded"
	ReasonImpossible    Reason = "cost-impossible" // the cost is above what a limit can ever hold
	ReasonBucketFull    Reason = "bucket-full"
	ReasonScheduledFull Reason = "scheduled-full"
	ReasonFlowFull      Reason = "flow-full"
	ReasonGroupFull     Reason = "group-full"
	ReasonTooManyFlows  Reason = "too-many-flows"   // too many flows or groups have jobs: no new one is accepted
	ReasonDeadFull      Reason = "dead-full"        // the bucket has as many dead letters as it may
	ReasonShed          Reason = "shed"             // the bucket is too full for jobs of this priority
	ReasonIdentity      Reason = "identity-missing" // a limit counts by something that the caller does not have
	ReasonIDReused      Reason = "id-reused"        // a job with the id has other content
	ReasonFlowDisabled  Reason = "flow-disabled"    // its flow is disabled, until an operator enables it
	ReasonUnknownFlow   Reason = "unknown-flow"     // the bucket has no such flow, and wants each to exist: see FlowSettings.MustExist
	ReasonUnknownBundle Reason = "unknown-bundle"   // the caller has no such bundle open in the bucket: see [Bundle]
	ReasonWaitTooLong   Reason = "wait-too-long"    // it is expected to wait longer than it may
	ReasonIDTaken       Reason = "id-taken"         // the id belongs to another caller's job
	ReasonOverloaded    Reason = "overloaded"       // it did not reach Redis in time, because of other calls to it
	ReasonIDEnded       Reason = "id-ended"         // the job of this id ended undelivered: it is a dead letter, was dropped or cancelled
)

// Reasons lists all reasons, for metrics.
func Reasons() []Reason {
	return []Reason{
		ReasonLimit, ReasonImpossible, ReasonBucketFull, ReasonScheduledFull, ReasonFlowFull, ReasonGroupFull, ReasonTooManyFlows,
		ReasonDeadFull, ReasonShed, ReasonIdentity, ReasonIDReused, ReasonIDTaken, ReasonIDEnded, ReasonFlowDisabled, ReasonUnknownFlow,
		ReasonUnknownBundle, ReasonWaitTooLong, ReasonOverloaded,
	}
}

// Refusal holds why a job was refused, and when it may be accepted.
type Refusal struct {
	Reason Reason

	// RetryAfter is how long to wait until the job would be accepted, if no other caller enqueues meanwhile; 0 if waiting does not help. It includes
	// what other jobs of the same call spend, for up to 256 jobs. In a larger call, jobs decided later may spend more, and RetryAfter is a lower
	// bound.
	RetryAfter time.Duration

	// Spread is how long after RetryAfter the caller should return, because others were refused before it: see [admission.Spread.Delay]. The jobs of
	// one call count as one refusal.
	Spread time.Duration

	Limits []string // the limits that refused
	Detail string   // a sentence for people
}

// Return returns how long the caller should wait: RetryAfter plus Spread. HTTP clients get it as Retry-After.
func (r *Refusal) Return() time.Duration { return r.RetryAfter + r.Spread }
