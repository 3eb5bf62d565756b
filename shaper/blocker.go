package shaper

import (
	"slices"
	"strings"
)

// Blocker is one cause that holds a job back: a scope and a reason. Its text is one word for programs, such as "flow-paused".
type Blocker struct {
	Scope  Scope
	Reason BlockReason
}

// BlockReason is why a scope holds a job back.
type BlockReason string

// The reasons.
const (
	BlockPaused       BlockReason = "paused"        // an operator paused the scope
	BlockClosed       BlockReason = "closed"        // the bucket is outside of its drain windows
	BlockDisabled     BlockReason = "disabled"      // the flow is disabled: its jobs become dead letters
	BlockMissing      BlockReason = "missing"       // the flow must exist, and does not: see FlowSettings.MustExist
	BlockAhead        BlockReason = "ahead"         // other jobs of its flow depart first
	BlockPace         BlockReason = "pace"          // of a bucket: the job is the next of its flow and waits for its slot; else the rate of the scope
	BlockNotBefore    BlockReason = "not-before"    // the job is delayed
	BlockBackoff      BlockReason = "backoff"       // an attempt failed, and the next one is not due
	BlockLastChance   BlockReason = "last-chance"   // the job is sent alone, and another such job is in flight
	BlockReturned     BlockReason = "returned"      // the job was claimed repeatedly, and its permits were returned unused
	BlockMaxInFlight  BlockReason = "max-in-flight" // the scope has as many requests in flight as it may
	BlockQuota        BlockReason = "quota"         // the departures of the scope have used up a quota
	BlockBudget       BlockReason = "budget"        // what the job reserves does not fit into a budget of the scope yet
	BlockHeld         BlockReason = "held"          // the downstream of the scope asked to wait
	BlockBreakerOpen  BlockReason = "breaker-open"  // the circuit breaker of the scope is open or half-open
	BlockAdaptivePace BlockReason = "adaptive-pace" // the downstream of the scope asks for less than its rate
)

// blockers lists the reasons of each scope.
var blockers = []struct {
	scope   Scope
	reasons []BlockReason
}{
	{ScopeBucket, []BlockReason{BlockPaused, BlockClosed, BlockAhead, BlockPace, BlockNotBefore, BlockBackoff, BlockLastChance, BlockReturned, BlockMaxInFlight, BlockQuota, BlockBudget, BlockHeld, BlockBreakerOpen, BlockAdaptivePace}},
	{ScopeGroup, []BlockReason{BlockPaused, BlockMaxInFlight, BlockPace, BlockQuota, BlockBudget}},
	{ScopeFlow, []BlockReason{BlockPaused, BlockDisabled, BlockMissing, BlockMaxInFlight, BlockPace, BlockQuota, BlockBudget, BlockHeld, BlockBreakerOpen, BlockAdaptivePace}},
	{ScopePool, []BlockReason{BlockMaxInFlight, BlockPace, BlockQuota, BlockBudget, BlockHeld, BlockBreakerOpen, BlockAdaptivePace}},
}

// BlockerWords lists the texts of all blockers.
func BlockerWords() []string {
	var words []string
	for _, of := range blockers {
		for _, reason := range of.reasons {
			if word := (Blocker{of.scope, reason}).String(); !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	return words
}

// String returns the reason alone for a bucket, and the scope and the reason for any other scope. The quota of a flow reads like its bucket's:
// clients know one word for both.
func (b Blocker) String() string {
	if b.Scope == ScopeBucket || b == (Blocker{ScopeFlow, BlockQuota}) {
		return string(b.Reason)
	}
	return string(b.Scope) + "-" + string(b.Reason)
}

// MarshalText writes the word of String.
func (b Blocker) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads the word of String. A word that this version does not know is a reason of a bucket.
func (b *Blocker) UnmarshalText(text []byte) error {
	*b = Blocker{ScopeBucket, BlockReason(text)}
	for _, of := range blockers {
		if reason, ok := strings.CutPrefix(string(text), string(of.scope)+"-"); ok && slices.Contains(of.reasons, BlockReason(reason)) {
			*b = Blocker{of.scope, BlockReason(reason)}
		}
	}
	return nil
}
