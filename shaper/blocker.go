package shaper

import (
	"slices"
	"strings"
)

// Blocker is one thing that keeps a job from leaving: a reason, and the scope that has it. Its text is one word for programs, such as
// "flow-paused".
type Blocker struct {
	Scope  Scope
	Reason BlockReason
}

// BlockReason says why a scope keeps a job from leaving.
type BlockReason string

// The reasons.
const (
	BlockPaused       BlockReason = "paused"        // an operator paused the scope
	BlockClosed       BlockReason = "closed"        // the bucket is outside of its drain windows
	BlockDisabled     BlockReason = "disabled"      // the flow is disabled: its jobs become dead letters
	BlockMissing      BlockReason = "missing"       // the flow has to exist, and does not: see FlowSettings.MustExist
	BlockAhead        BlockReason = "ahead"         // other jobs of its flow leave first
	BlockPace         BlockReason = "pace"          // of a bucket: the job is next of its flow and waits for its slot; else the rate of the scope
	BlockNotBefore    BlockReason = "not-before"    // the job is delayed
	BlockBackoff      BlockReason = "backoff"       // an attempt failed, and the next one is not due
	BlockLastChance   BlockReason = "last-chance"   // the job goes alone, and another such job is in flight
	BlockReturned     BlockReason = "returned"      // the job was claimed again and again, and its permits came back unused
	BlockMaxInFlight  BlockReason = "max-in-flight" // the scope has as many requests in flight as it may
	BlockQuota        BlockReason = "quota"         // as many jobs left the scope in a window as a quota allows
	BlockBudget       BlockReason = "budget"        // what the job reserves does not fit into a budget of the scope yet
	BlockHeld         BlockReason = "held"          // the downstream of the scope named a time to wait for
	BlockBreakerOpen  BlockReason = "breaker-open"  // the circuit breaker of the scope is open or half-open
	BlockAdaptivePace BlockReason = "adaptive-pace" // the downstream of the scope asks for less than its rate
)

// blockers are the reasons that each scope can have.
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

// String is the reason of a bucket, and the scope before the reason of any other scope. The quota of a flow is told as that of its bucket:
// clients know one word for both.
func (b Blocker) String() string {
	if b.Scope == ScopeBucket || b == (Blocker{ScopeFlow, BlockQuota}) {
		return string(b.Reason)
	}
	return string(b.Scope) + "-" + string(b.Reason)
}

// MarshalText has JSON show the word.
func (b Blocker) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads the word of an answer. A word that this version does not know is a reason of a bucket.
func (b *Blocker) UnmarshalText(text []byte) error {
	*b = Blocker{ScopeBucket, BlockReason(text)}
	for _, of := range blockers {
		if reason, ok := strings.CutPrefix(string(text), string(of.scope)+"-"); ok && slices.Contains(of.reasons, BlockReason(reason)) {
			*b = Blocker{of.scope, BlockReason(reason)}
		}
	}
	return nil
}
