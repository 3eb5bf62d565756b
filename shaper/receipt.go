package shaper

import (
	"time"

	"github.com/tundish-io/tundish/admission"
)

// Receipt is the answer for one job. Refusal is nil when the job is in.
type Receipt struct {
	ID        string
	Bucket    string
	Flow      string    // as the bucket's FlowSettings name it, else that of the job
	Group     string    // as the bucket's GroupSettings name it, else that of the job
	State     State     // of a job that is in: queued or scheduled, or that of the duplicate; with ReasonIDEnded that of the job of this id
	Duplicate bool      // the id was there already: no second job, no quota spent
	Position  int64     // jobs of its flow that leave first, of those there are now
	ETA       time.Time // estimated departure, on the clock of Redis; zero while the bucket or the flow is paused
	Refusal   *Refusal
	Decisions []admission.Decision // of the bucket's limits, in order; none for a duplicate
}

// Reason says why a job was refused.
type Reason string

// The reasons of a refusal.
const (
	ReasonLimit         Reason = "limit-exceeded"
	ReasonImpossible    Reason = "cost-impossible" // the cost is above what a limit can ever hold
	ReasonBucketFull    Reason = "bucket-full"
	ReasonScheduledFull Reason = "scheduled-full"
	ReasonFlowFull      Reason = "flow-full"
	ReasonGroupFull     Reason = "group-full"
	ReasonTooManyFlows  Reason = "too-many-flows"   // so many, or so many groups, have jobs that no new one is let in
	ReasonDeadFull      Reason = "dead-full"        // the bucket has as many dead letters as it may
	ReasonShed          Reason = "shed"             // the bucket is too full for jobs of this priority
	ReasonIdentity      Reason = "identity-missing" // a limit counts by something that is not known of the caller
	ReasonIDReused      Reason = "id-reused"        // the id is that of a job with other content
	ReasonFlowDisabled  Reason = "flow-disabled"    // its flow is disabled, until an operator enables it
	ReasonUnknownFlow   Reason = "unknown-flow"     // the bucket has no such flow, and wants each to exist: see FlowSettings.MustExist
	ReasonUnknownBundle Reason = "unknown-bundle"   // the caller has no such bundle open in the bucket: see [Bundle]
	ReasonWaitTooLong   Reason = "wait-too-long"    // it is expected to wait longer than it may
	ReasonIDTaken       Reason = "id-taken"         // the id is that of another caller's job
	ReasonOverloaded    Reason = "overloaded"       // it did not reach Redis, behind what others send there
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

// Refusal says why a job did not get in, and when it may.
type Refusal struct {
	Reason Reason

	// RetryAfter is how long to wait until the job would get in, if no
	// other caller enqueues meanwhile; 0 where waiting does not help. What other jobs of the same
	// call have spent counts, up to 256 jobs a call: in a larger one a job that is
	// decided later may spend more, and this is a lower bound.
	RetryAfter time.Duration

	// Spread is how much later than after RetryAfter the caller should return, because others were refused before it: see
	// [admission.Spread.Delay]. The jobs of one call are refused as one.
	Spread time.Duration

	Limits []string // the limits that refused
	Detail string   // a sentence for people
}

// Return is after how long the caller should return: RetryAfter and Spread. It is what HTTP clients get as Retry-After.
func (r *Refusal) Return() time.Duration { return r.RetryAfter + r.Spread }
