package workers

import (
	"net/http"
	"time"
)

// namedWait returns how long a receiver asks to wait, from 0 to [shaper.MaxHold], in whole
// microseconds; 0 if it does not ask, or not intelligibly. Retry-After decides if it names a time,
// else the rate limits that are exhausted.
func namedWait(h http.Header, now time.Time) time.Duration {
	if wait := retryAfter(h, now); wait > 0 {
		return wait
	}
	return exhaustedLimits(h, now)
}

// retryAfter reads Retry-After-Ms, which is exact, before Retry-After.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if n, ok := parseNumber(headerValue(h, "Retry-After-Ms")); ok {
		return waitOf(n, time.Millisecond)
	}
	return parseWait(headerValue(h, "Retry-After"), now)
}
