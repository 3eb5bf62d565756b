package outgoing

import (
	"context"
	"net/http"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// failure is why a request got no response.
type failure struct {
	err  error
	fate fate

	wasGood    bool // its connection got responses before, so another connection may too
	isReported bool // another request reports the fault of their connection
}

// exchange sends a request over a connection and returns the response. Without a response it discards the connection and returns why.
func (s *Sender) exchange(ctx context.Context, c *conn, reused bool, req *Request) (*http.Response, failure) {
	written, sent := c.wire.written.Load(), c.wire.age()
	resp, err := sendOn(c, req.http(ctx))
	if err == nil {
		c.hasResponded.Store(true)
		s.refusals.clear(c.origin)
		return resp, failure{}
	}
	failed := failure{err: err, fate: fateOf(err)}
	// Only of a kept connection: a receiver that hangs up on each new one would be tried forever.
	if failed.fate == fateUnknown && ctx.Err() == nil && c.wire.written.Load() == written {
		failed.fate = fateStale
	}
	if failed.fate == fateStale && !reused {
		failed.fate = fateUnknown
	}
	failed.isReported = c.isAtFault(sent) && c.hasFaulted.Swap(true)
	failed.wasGood = c.hasResponded.Load()
	s.conns.discard(c)
	return nil, failed
}

// another returns a second connection for a request that the receiver did not process, nil if there is none while the permit is good.
func (s *Sender) another(ctx context.Context, attempt *shaper.Attempt, o shaper.Origin) *conn {
	if attempt.IsVoid() {
		return nil
	}
	c, _, err := s.conns.get(ctx, o)
	if err != nil {
		return nil
	}
	if ctx.Err() != nil || attempt.IsVoid() {
		s.conns.release(c)
		return nil
	}
	return c
}

// notAnswered returns the outcome of an attempt without a response.
func (s *Sender) notAnswered(ctx context.Context, o shaper.Origin, failed failure) shaper.Outcome {
	switch {
	case failed.fate == fateUnprocessed:
		return s.refusals.unprocessed(o, failed.err)
	case failed.fate == fateStale:
		return shaper.Returned(workers.ReasonStaleConnection)
	case ctx.Err() != nil:
		return shaper.Retry(workers.ReasonInterrupted, "the dispatcher stopped, or the lease ended, before the receiver answered")
	case failed.fate == fateThrottled:
		return throttled(failed.err)
	}
	outcome := workers.ClassifyError(failed.err)
	if failed.isReported {
		outcome.Signal = shaper.SignalNone
	}
	return outcome
}
