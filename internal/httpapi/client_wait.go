package httpapi

import (
	"net/http"
	"strconv"
	"time"
)

// timeoutHeaders are the headers that official API clients use for their timeout, in seconds: the first is sent by the clients for Node, the second by
// the clients for Python.
var timeoutHeaders = []string{"X-Stainless-Timeout", "X-Stainless-Read-Timeout"}

// clientWait returns how long the client of a proxy waits: limit, or the smallest time in its headers if that is shorter, including Prefer: wait=N.
// Invalid times are ignored.
func clientWait(h http.Header, limit time.Duration) time.Duration {
	for _, name := range timeoutHeaders {
		for _, value := range h.Values(name) {
			if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 {
				limit = min(limit, time.Duration(min(seconds, limit.Seconds())*float64(time.Second)))
			}
		}
	}
	if wait, f := preferredWait(h); f == nil && wait > 0 {
		limit = min(limit, wait)
	}
	return max(limit.Truncate(time.Microsecond), time.Microsecond)
}
