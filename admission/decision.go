package admission

import "time"

// Decision is the answer of one limit to one question.
type Decision struct {
	Limit   string // the limit's name
	Allowed bool

	// Shadow says that the limit is in shadow mode: it holds nobody back, and
	// callers are not told of it.
	Shadow bool

	// WouldRefuse says that the limit is in shadow mode and would have refused:
	// RetryAfter and Impossible tell how, and Allowed is true all the same.
	WouldRefuse bool

	// Source says who decided, if it was not the limit's state in Redis.
	Source Source

	// Impossible says that the cost is above what the limit can ever hold:
	// waiting does not help. RetryAfter is then 0.
	Impossible bool

	// Quota requests may pass in a Window, for the RateLimit-Policy header; of a
	// token bucket, what a full one holds and the time in which an empty one
	// refills.
	Quota  int64
	Window time.Duration

	// Remaining is the number of whole requests of cost 1 that would pass now,
	// after this decision.
	Remaining int64

	// RetryAfter is how long to wait until the same question would be allowed,
	// if nobody else asks meanwhile; 0 when Allowed. ResetAfter is the time
	// until the limit is as if it had never been used.
	RetryAfter time.Duration
	ResetAfter time.Duration
}

// Later is the decision as it reads after a time in which nothing was spent.
func (d Decision) Later(passed time.Duration) Decision {
	if d.RetryAfter > 0 {
		d.RetryAfter = max(d.RetryAfter-passed, 0)
	}
	d.ResetAfter = max(d.ResetAfter-passed, d.RetryAfter, 0)
	return d
}

// Source says who made a decision.
type Source string

// Who may make a decision.
const (
	FromStore  Source = ""       // Redis, now
	FromMemory Source = "memory" // this process, which knows when the refused caller may come again
	FromSync   Source = "sync"   // this process, of what it took in advance ([Limit.SyncInterval])
	FromLocal  Source = "local"  // this process, because Redis is away ([Local])
	FromNobody Source = "open"   // nobody, because Redis is away ([Open], and any limit in shadow mode)

	// FromExemption is nobody either: the limit counts by something of the
	// caller that is not known, and lets such callers pass ([Exempt]).
	FromExemption Source = "exempt"
)
