// Package webhook delivers jobs as HTTP requests, in the manner of Standard
// Webhooks: the payload is the body, webhook-id the job's id on every attempt,
// webhook-timestamp the time of this one.
//
// One permit is one request. This package never sends a second one: it follows no redirect and
// repeats no request. It makes the connection ready, asks for the permit, and then
// sends the first byte. If the permit is void by then, the connection stays open for the next
// request.
//
// A flow may have a URL, headers and secrets of its own ([shaper.OwnDelivery]). Jobs of the flow
// that name no URL go to its URL, else to the bucket's. Its headers replace a job's headers, and
// its secrets sign. Both are used only towards one origin: that of the flow's URL or, without one,
// that of the bucket's URL. Any other delivery goes without them. Where a flow has no secrets, those
// of the bucket sign, towards the origin of the bucket's URL. The client certificate of the bucket is
// shown to that origin only.
//
// Jobs may name any URL, so the receiver is not trusted. Connections go only to addresses of the
// public internet, unless others are allowed ([workers.Guard]). No proxy is used unless the settings
// name one. Of the answer, a bounded part is read in bounded time.
//
// A delivery may also be an event of CloudEvents, see [Format].
package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// maxAnswer bounds the bytes that are read of an answer. A longer answer closes its connection:
// that is cheaper than to read on.
const maxAnswer = 64 << 10

// Worker is the [shaper.Worker] of the kind "webhook". It is safe for
// concurrent use.
type Worker struct {
	config Config
	conns  *pool
}

var _ shaper.Worker = (*Worker)(nil)

// New makes a worker, or returns what [Config.Validate] and [TLS.Check] say of config.
func New(config Config) (*Worker, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := config.TLS.Check(os.ReadFile); err != nil {
		return nil, err
	}
	if err := config.read(); err != nil {
		return nil, err
	}
	return &Worker{config: config, conns: newPool(config)}, nil
}

// Close closes the connections that are kept; those in use close when their
// delivery ends.
func (w *Worker) Close() { w.conns.close() }

// Deliver makes one attempt: one request at most, and none if it returns
// [shaper.ResultReturned]. The status of an answer decides as soon as it is there,
// even if its body never ends.
func (w *Worker) Deliver(ctx context.Context, attempt *shaper.Attempt) shaper.Outcome {
	attemptCtx, cancel := context.WithTimeout(ctx, w.config.Timeout)
	defer cancel()
	req, origin, err := w.config.request(attemptCtx, attempt, time.Now())
	if errors.Is(err, errFlow) {
		return shaper.Retry(shaper.ReasonFlowSettings, workers.Snippet([]byte(err.Error())))
	}
	if err != nil {
		return workers.ClassifyError(err)
	}
	conn, reused, err := w.conns.get(attemptCtx, origin)
	if ctx.Err() != nil {
		w.conns.release(conn)
		return shaper.Returned(workers.ReasonShutdown)
	}
	if err == nil {
		err = attemptCtx.Err()
	}
	if err != nil {
		w.conns.release(conn)
		if errors.Is(err, errTLSFiles) {
			return shaper.Retry(workers.ReasonTLS, workers.Snippet([]byte(err.Error())))
		}
		return workers.ClassifyError(err)
	}
	if err := attempt.Depart(); err != nil {
		w.conns.release(conn)
		return shaper.Returned(workers.ReasonLate)
	}
	written := conn.wire.written.Load()
	resp, err := conn.RoundTrip(req)
	if err != nil {
		w.conns.discard(conn)
		switch {
		case ctx.Err() != nil:
			return shaper.Retry(workers.ReasonInterrupted, "the dispatcher stopped, or the lease ended, before the receiver answered")
		case reused && attemptCtx.Err() == nil && conn.wire.written.Load() == written:
			// Only of a kept connection: a receiver that hangs up on each new
			// one would be tried forever.
			return shaper.Returned(workers.ReasonStaleConnection)
		default:
			return workers.ClassifyError(err)
		}
	}
	outcome := w.config.Policy.Classify(resp.StatusCode, resp.Header, time.Now())
	outcome.Body = readAnswer(resp)
	w.conns.put(conn)
	return outcome
}

// readAnswer returns the beginning of the answer's body, reads a little more so
// that the connection can be used again, and closes it.
func readAnswer(resp *http.Response) string {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols || resp.Body == http.NoBody {
		return "" // the body of the former is the bare connection, which heeds no context
	}
	body := io.LimitReader(resp.Body, maxAnswer)
	beginning, err := io.ReadAll(io.LimitReader(body, workers.MaxSnippet+1)) // one more: Snippet sees the cut
	if err == nil {
		_, _ = io.Copy(io.Discard, body) // the status is known: an error costs the connection only
	}
	return workers.Snippet(beginning)
}
