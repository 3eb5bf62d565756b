package outgoing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// UserAgent is what requests say of their sender, where nothing else says it.
const UserAgent = "tundish/1"

// maxAnswer bounds the bytes that are read of an answer. A longer answer closes its connection:
// that is cheaper than to read on.
const maxAnswer = 64 << 10

// Sender sends requests. It is safe for concurrent use.
type Sender struct {
	config Config
	conns  *pool
}

// NewSender makes a sender of settings that [Config.Validate] has found valid. Its errors are of the egress proxy and of Home.
func NewSender(config Config) (*Sender, error) {
	transport, err := newTransport(config)
	if err != nil {
		return nil, err
	}
	return &Sender{config, newPool(config.Concurrency, transport)}, nil
}

// Close closes the connections that are kept; those in use close when their
// delivery ends.
func (s *Sender) Close() { s.conns.close() }

// Transport is that of the connections, for tests that trust their own server.
func (s *Sender) Transport() *http.Transport { return s.conns.transport() }

// Kept returns how many connections are kept, and to how many origins.
func (s *Sender) Kept() (connections, origins int) { return s.conns.kept() }

// Request is what a worker sends for an attempt.
type Request struct {
	Method string // "" is POST
	To     Target
	Header http.Header
	Body   []byte // none if it is empty
}

// http returns the request as net/http has it. Its GetBody is nil, so that net/http cannot send it again: it would do so
// unasked for a request with a header Idempotency-Key.
func (r *Request) http(ctx context.Context) *http.Request {
	req := new(http.Request).WithContext(ctx) // http.NewRequest would read the URL once more
	req.Method, req.URL, req.Header = cmp.Or(r.Method, http.MethodPost), r.To.URL, r.Header
	if len(r.Body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.Body)), int64(len(r.Body))
	}
	return req
}

// Send makes one attempt: one request at most, and none if it returns [shaper.ResultReturned]. The status of an answer decides as
// soon as it is there, even if its body never ends.
func (s *Sender) Send(ctx context.Context, attempt *shaper.Attempt, req *Request) shaper.Outcome {
	limit := newTimeLimit(ctx, s.config.Timeout)
	defer func() { limit.cancel() }()
	conn, resp, outcome := s.roundTrip(ctx, limit, attempt, req) //nolint:bodyclose // answered closes it
	if resp == nil {
		return outcome
	}
	outcome = s.answered(resp, attempt.AnswerBytes)
	s.conns.put(conn)
	return outcome
}

// Answer is an answer whose body passes as it comes: see [Sender.Open].
type Answer struct {
	*http.Response

	sender *Sender
	conn   *conn
	cancel context.CancelFunc
}

// Open makes one attempt as Send does, and returns as soon as the header of the answer is there. Read its body and close it within the timeout. Where
// the answer is nil, the outcome says why; else it is for the caller to say.
func (s *Sender) Open(ctx context.Context, attempt *shaper.Attempt, req *Request) (*Answer, shaper.Outcome) {
	limit := newTimeLimit(ctx, s.config.Timeout)
	conn, resp, outcome := s.roundTrip(ctx, limit, attempt, req) //nolint:bodyclose // Close closes it
	if resp == nil {
		limit.cancel()
		return nil, outcome
	}
	return &Answer{Response: resp, sender: s, conn: conn, cancel: limit.cancel}, outcome
}

// Close ends the answer. The connection is used again if the body was read to its end.
func (a *Answer) Close() {
	_ = a.Body.Close() // what is not read is not wanted
	a.cancel()
	a.sender.conns.put(a.conn)
}

// roundTrip sends the request of an attempt and returns the answer with its connection; without an answer, the outcome. limit is the time that
// the attempt has.
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
	written := conn.wire.written.Load()
	resp, err := sendOn(conn, req.http(limit.ctx))
	if err != nil {
		s.conns.discard(conn)
		// Only of a kept connection: a receiver that hangs up on each new one would be tried forever.
		isStale := reused && limit.ctx.Err() == nil && conn.wire.written.Load() == written
		return nil, nil, notAnswered(ctx, isStale, err)
	}
	return conn, resp, shaper.Outcome{}
}

// notConnected is the outcome of an attempt without a connection.
func notConnected(err error) shaper.Outcome {
	if errors.Is(err, ErrTLSFiles) {
		return shaper.Retry(workers.ReasonTLS, workers.Snippet([]byte(err.Error())))
	}
	return workers.ClassifyError(err)
}

// notAnswered is the outcome of an attempt without an answer. The connection is stale if it had died before the request.
func notAnswered(ctx context.Context, isStale bool, err error) shaper.Outcome {
	switch {
	case ctx.Err() != nil:
		return shaper.Retry(workers.ReasonInterrupted, "the dispatcher stopped, or the lease ended, before the receiver answered")
	case isStale:
		return shaper.Returned(workers.ReasonStaleConnection)
	default:
		return workers.ClassifyError(err)
	}
}

// answered is the outcome of an answer, with the wanted bytes of its body.
func (s *Sender) answered(resp *http.Response, wanted int64) shaper.Outcome {
	outcome := s.config.Policy.Classify(resp.StatusCode, resp.Header, time.Now())
	body, cut := readAnswer(resp, wanted)
	outcome.Body = workers.Snippet(body)
	if wanted > 0 {
		if int64(len(body)) > wanted {
			body, cut = body[:wanted], true
		}
		outcome.Answer = &shaper.Answer{Status: resp.StatusCode, Headers: resp.Header, Body: body, Cut: cut}
	}
	return outcome
}

// readAnswer returns the beginning of the answer's body: as much as is wanted of it, but enough for people. It reads a little more so
// that the connection can be used again, and closes it. cut says that the body did not end within what is returned.
func readAnswer(resp *http.Response, wanted int64) (beginning []byte, cut bool) {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == http.NoBody {
		return nil, false // the body of the former is the bare connection, which heeds no context
	}
	most := max(wanted, workers.MaxSnippet+1) // one more than a snippet has: Snippet sees the cut
	body := io.LimitReader(resp.Body, max(most, maxAnswer)+1)
	beginning, err := io.ReadAll(io.LimitReader(body, most))
	var rest int64
	if err == nil {
		rest, err = io.Copy(io.Discard, body) // the status is known: an error costs the connection only
	}
	return beginning, rest > 0 || err != nil
}
