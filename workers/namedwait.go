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

// wait returns how long a response that is no 2xx asks to wait: by its header, otherwise by google.rpc.RetryInfo in its body. An exhausted rate limit
// does not explain why the request was refused. If the status blames the request rather than the sender, the request is held only once for that:
// otherwise a request that is always refused would never end.
func (r *Response) wait() time.Duration {
	now := r.clock()
	if wait := retryAfter(r.Header, now); wait > 0 {
		return wait
	}
	if r.Number <= 1 || !saysOfRequest(r.Status) {
		if wait := exhaustedLimits(r.Header, now, limitHeaders); wait > 0 {
			return wait
		}
	}
	if r.Status >= 400 && r.hasJSON() {
		return parseWait(retryInfo(r.Body), now)
	}
	return 0
}

// saysOfRequest reports whether a status blames the request: any 4xx but 403, 420 and 429, by which APIs ask for less.
func saysOfRequest(status int) bool {
	switch status {
	case http.StatusForbidden, statusCalm, http.StatusTooManyRequests:
		return false
	}
	return status/100 == 4
}

// statusCalm is 420, "enhance your calm": no status of HTTP, but of APIs whose limits are older than 429.
const statusCalm = 420
