package workers

import (
	"net/http"
	"time"
)

// retryAfter reads Retry-After-Ms, which is exact, before Retry-After.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if n, ok := parseNumber(headerValue(h, "Retry-After-Ms")); ok {
		return waitOf(n, time.Millisecond)
	}
	return parseWait(headerValue(h, "Retry-After"), now)
}
