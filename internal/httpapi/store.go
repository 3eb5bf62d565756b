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

// storeFaults makes faults of what goes wrong between here and Redis, and logs
// them: one at once and then now and then, not one for each request.
type storeFaults struct {
	log       *slog.Logger
	sometimes rate.Sometimes
}

func newStoreFaults(log *slog.Logger) *storeFaults {
	return &storeFaults{log: log, sometimes: rate.Sometimes{First: 1, Interval: 10 * time.Second}}
}

// of returns a 503 if the same request may work later and a 500 if not. The
// error's text stays here: it may name what clients need not know.
func (s *storeFaults) of(r *http.Request, err error) *fault {
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
	if !redisconn.Unavailable(err) {
		return newFault(codeInternal, "the log says more under the request id")
	}
	f := newFault(codeStoreUnavailable, "Redis is not reachable or too slow: retry")
	f.RetryAfter = retryStore
	return f
}

// elsewhere says of an error that a bucket is in another pool than this process is configured for; "" of others.
func elsewhere(err error) string {
	if errors.Is(err, shaper.ErrTagChanged) {
		return "this process is configured for another pool of the bucket and admits no jobs; its log tells the operator"
	}
	return ""
}
