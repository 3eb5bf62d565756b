package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
)

// storeFaults turns errors between here and Redis into faults, and logs them: one at once and then now and then, not one for each request.
type storeFaults struct {
	log       *slog.Logger
	sometimes rate.Sometimes
}

func newStoreFaults(log *slog.Logger) *storeFaults {
	return &storeFaults{log: log, sometimes: rate.Sometimes{First: 1, Interval: 10 * time.Second}}
}

// faultOf returns a 503 that names the failure of Redis, or a 500 for an error of this program. The fault does not have the error's text, which may be
// confidential.
func (s *storeFaults) faultOf(r *http.Request, err error) *fault {
	if kept, ok := r.Context().Value(causeKey{}).(*error); ok {
		*kept = err
	}
	if r.Context().Err() == nil {
		s.sometimes.Do(func() {
			s.log.ErrorContext(r.Context(), "a call of Redis failed", "error", err, "request_id", requestID(r))
		})
	}
	if detail := elsewhere(err); detail != "" {
		f := newFault(codeStoreUnavailable, "%s", detail)
		f.RetryAfter = retryStore
		return f
	}
	f := newFault(codeInternal, "the log says more under the request id")
	switch redisconn.FailureOf(err) {
	case redisconn.NoFailure:
		return f
	case redisconn.Full:
		f = newFault(codeStoreFull, "Redis is out of memory: nothing was stored; retry later")
		f.RetryAfter = retryFull
		return f
	case redisconn.Forbidden:
		f = newFault(codeStoreForbidden, "Redis refuses this server's user or password: nothing was stored; the operator has to correct redis.password or the user's rights")
	case redisconn.Refused:
		f = newFault(codeStoreUnavailable, "Redis refuses writes for now: nothing was stored; retry")
	case redisconn.Unreachable:
		f = newFault(codeStoreUnavailable, "Redis is not reachable or too slow: retry")
		if !redisconn.ReplyLost(err) {
			f = newFault(codeStoreUnavailable, "Redis is not reachable or too slow: nothing was stored; retry")
		}
	}
	f.RetryAfter = retryStore
	return f
}

// mayHaveRun reports whether a request may have been carried out despite the error: the reply of Redis was lost. While the circuit breaker is open,
// nothing is sent.
func mayHaveRun(err error) bool {
	return redisconn.ReplyLost(err) && elsewhere(err) == ""
}

// elsewhere returns the text of an error that a bucket is changing its pool, or is in another pool than this process knows; "" for other errors.
func elsewhere(err error) string {
	if errors.Is(err, shaper.ErrTagChanged) {
		return "the bucket changes its pool or its flows at this moment, or this process is configured for another pool of the bucket (see its log): nothing was stored; retry"
	}
	return ""
}
