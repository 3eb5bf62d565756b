package outgoing

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// UserAgent is the default User-Agent of requests.
const UserAgent = "tundish/1"

// maxAnswer bounds, in bytes, how much of a response is read. A longer response closes its connection: that is cheaper than to read on.
const maxAnswer = 64 << 10

// Sender sends requests. It is safe for concurrent use.
type Sender struct {
	config   Config
	conns    *pool
	refusals refusals
}

// NewSender makes a sender of settings that [Config.Validate] has found valid. Its errors are of the egress proxy and of Home.
func NewSender(config Config) (*Sender, error) {
	transport, err := newTransport(config)
	if err != nil {
		return nil, err
	}
	return &Sender{config: config, conns: newPool(config.Concurrency, config.ConnectionMaxAge, transport)}, nil
}

// Close closes the connections that are kept; those in use close when their
// delivery ends.
func (s *Sender) Close() { s.conns.close() }

// Transport returns the transport of the connections, for tests that trust their own server.
func (s *Sender) Transport() *http.Transport { return s.conns.transport() }

// Kept returns how many connections are kept, and to how many origins.
func (s *Sender) Kept() (connections, origins int) { return s.conns.kept() }

// Send makes one attempt: the receiver processes one request at most, and none if Send returns [shaper.ResultReturned]. The policy judges the response
// by its head and by the part of its body that arrived in time, even if the body never ends: see [workers.Policy.Judge].
func (s *Sender) Send(ctx context.Context, attempt *shaper.Attempt, req *Request) shaper.Outcome {
	limit := newTimeLimit(ctx, s.config.Timeout)
	defer func() { limit.cancel() }()
	conn, resp, outcome := s.roundTrip(ctx, limit, attempt, req) //nolint:bodyclose // answered closes it
	if resp == nil {
		return outcome
	}
	outcome = s.answered(resp, attempt, req)
	s.conns.put(conn)
	return outcome
}

// Answer is a response whose body is streamed: see [Sender.Open].
type Answer struct {
	*http.Response

	sender *Sender
	conn   *conn
	cancel context.CancelFunc
}

// Open makes one attempt as Send does, and returns as soon as the header of the response has arrived. Read its body and close it within the timeout. If
// the response is nil, the outcome says why; otherwise the caller decides the outcome.
func (s *Sender) Open(ctx context.Context, attempt *shaper.Attempt, req *Request) (*Answer, shaper.Outcome) {
	limit := newTimeLimit(ctx, s.config.Timeout)
	conn, resp, outcome := s.roundTrip(ctx, limit, attempt, req) //nolint:bodyclose // Close closes it
	if resp == nil {
		limit.cancel()
		return nil, outcome
	}
	return &Answer{Response: resp, sender: s, conn: conn, cancel: limit.cancel}, outcome
}

// Close ends the response. The connection is used again if the body was read to its end.
func (a *Answer) Close() {
	_ = a.Body.Close() // the rest is discarded
	a.cancel()
	a.sender.conns.put(a.conn)
}

// roundTrip sends the request of an attempt and returns the response with its connection; without a response, the outcome. limit is the time of the
// attempt.
func (s *Sender) roundTrip(ctx context.Context, limit *timeLimit, attempt *shaper.Attempt, req *Request) (*conn, *http.Response, shaper.Outcome) {
	conn, reused, err := s.conns.get(limit.ctx, req.To.Origin)
	if ctx.Err() != nil {
		s.conns.release(conn)
		return nil, nil, shaper.Returned(workers.ReasonShutdown)
	}
	if err == nil {
		err = limit.ctx.Err()
	}
	if err != nil {
		s.conns.release(conn)
		return nil, nil, notConnected(err)
	}
	ready := time.Now()
	if err := attempt.Depart(); err != nil {
		s.conns.release(conn)
		return nil, nil, shaper.Returned(workers.ReasonLate)
	}
	limit.extend(ctx, time.Since(ready))
	resp, failed := s.exchange(limit.ctx, conn, reused, req)
	if failed.fate == fateUnprocessed && failed.wasGood {
		if other := s.another(limit.ctx, attempt, req.To.Origin); other != nil {
			conn = other
			resp, failed = s.exchange(limit.ctx, conn, true, req)
		}
	}
	if resp == nil {
		return nil, nil, s.notAnswered(ctx, req.To.Origin, failed)
	}
	return conn, resp, shaper.Outcome{}
}

// notConnected is the outcome of an attempt without a connection.
func notConnected(err error) shaper.Outcome {
	if _, isLocal := errors.AsType[*workers.LocalError](err); !isLocal && errors.Is(err, ErrTLSFiles) {
		return shaper.Retry(workers.ReasonTLS, workers.Snippet([]byte(err.Error())))
	}
	return workers.ClassifyError(err)
}
