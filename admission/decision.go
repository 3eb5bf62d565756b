package admission

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Decision is the answer of one limit to one question.
type Decision struct {
	Limit   string // the limit's name
	Rate    Rate   // of the limit, for the tier of the caller
	Allowed bool

	// Shadow reports that the limit is in shadow mode: it refuses no request, and callers do
	// not learn of it.
	Shadow bool

	// WouldRefuse says that the limit is in shadow mode and would have refused. RetryAfter and Impossible have the values of the refusal, but
	// Allowed is true.
	WouldRefuse bool

	// Source names what decided, if it was not the limit's state in Redis.
	Source Source

	// Overflow says that the limit has MaxKeys states already, so this caller shares one state with all others above that number.
	Overflow bool

	// Impossible reports that the cost is above the limit's maximum: waiting does not help. RetryAfter is then 0.
	Impossible bool

	// Quota requests may pass in a Window, for the RateLimit-Policy header. For a token
	// bucket, Quota is its size, and Window the time until an empty one is full.
	Quota  int64
	Window time.Duration

	// Remaining is the number of whole requests of cost 1 that would pass now,
	// after this decision.
	Remaining int64

	// RetryAfter is how long to wait until the same question would be allowed,
	// if no other request comes meanwhile; 0 when Allowed. ResetAfter is the time
	// until the limit is as if it had never been used.
	RetryAfter time.Duration
	ResetAfter time.Duration

	// Spread is how much later than after RetryAfter a refused client should return, because others were refused before it: see
	// [Spread.Delay].
	Spread time.Duration
}

// Return returns the delay after which a refused client should retry: RetryAfter plus Spread. HTTP clients get it as Retry-After.
func (d Decision) Return() time.Duration { return d.RetryAfter + d.Spread }

// Later returns the decision as it is after a time without spending.
func (d Decision) Later(passed time.Duration) Decision {
	if d.RetryAfter > 0 {
		d.RetryAfter = max(d.RetryAfter-passed, 0)
	}
	d.ResetAfter = max(d.ResetAfter-passed, d.RetryAfter, 0)
	return d
}

// namedLimits lists limits by their names, each followed by the text of say:
// `limit "a"<say>`, `limits "a"<say> and "b"<say>`.
func namedLimits(by []Decision, say func(Decision) string) string {
	words := make([]string, len(by))
	for i, d := range by {
		words[i] = fmt.Sprintf("%q%s", d.Limit, say(d))
	}
	switch n := len(words); n {
	case 0:
		return "a limit"
	case 1:
		return "limit " + words[0]
	default:
		return "limits " + strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

// RetrySeconds returns a wait as the value of Retry-After: whole seconds, 1 or more, rounded up, so the client waits long enough.
func RetrySeconds(wait time.Duration) int64 { return max(int64(math.Ceil(wait.Seconds())), 1) }

// ExceededText returns the sentence for a refusal by limits, as every error, problem and log has it: `limit "per-caller" exceeded (100/m): retry in
// 12s`. With several limits: `limits "a" exceeded (5/s) and "b" exceeded (100/m): retry in 12s`. The wait is in whole seconds, rounded up, 1 or more,
// as in Retry-After.
func ExceededText(wait time.Duration, by ...Decision) string {
	text := namedLimits(by, func(d Decision) string { return fmt.Sprintf(" exceeded (%s)", d.Rate) })
	return fmt.Sprintf("%s: retry in %s", text, time.Duration(RetrySeconds(wait))*time.Second)
}

// ImpossibleText returns the sentence for a cost that limits can never allow: `cost 9 is above limit "per-caller" (at most 5 at once): lower the cost
// or raise the limit`.
func ImpossibleText(cost int64, by ...Decision) string {
	return fmt.Sprintf("cost %d is above %s: lower the cost or raise the limit", cost,
		namedLimits(by, func(d Decision) string { return fmt.Sprintf(" (at most %d at once)", d.Quota) }))
}

// Source names what made a decision.
type Source string

// The sources of a decision.
const (
	FromStore  Source = ""       // Redis, now
	FromMemory Source = "memory" // this process, which knows when the refused caller may retry
	FromSync   Source = "sync"   // this process, from requests that it took in advance ([Limit.SyncInterval])
	FromLocal  Source = "local"  // this process, because Redis is away ([Local])
	Undecided  Source = "open"   // none: Redis is unavailable, and the limit is [Open] or in shadow mode

	// FromExemption is no decision either: the caller lacks the identity that the limit counts by, and the limit exempts such callers ([Exempt]).
	FromExemption Source = "exempt"
)
