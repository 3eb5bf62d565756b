package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// readSize is how many bytes of a response are read at once.
const readSize = 4 << 10

// maxFault is how many bytes of an error response are read before it is passed on.
const maxFault = 64 << 10

// Causes for which a call is cancelled.
var (
	// ErrClientGone is the cause with which to cancel the context of a call whose client has disconnected.
	ErrClientGone = errors.New("llm: the client has gone")

	errIdle = errors.New("llm: the answer stood still for longer than idle_timeout")
)

// Call is a call of the API whose response is streamed to a client. It is not safe for concurrent use.
type Call struct {
	Status int
	Header http.Header

	worker  *Worker
	ask     *Ask
	attempt *shaper.Attempt
	answer  *outgoing.Answer
	verdict shaper.Outcome  // of an error response
	ctx     context.Context //nolint:containedctx // of the call: it ends with it
	cancel  context.CancelCauseFunc
	idle    *time.Timer

	stream *stream // reads a streaming response; otherwise nil
	whole  []byte  // of a response that doesn't stream: what is parsed for its usage or its error
	unread []byte  // of an error response: what is still to be passed on
	buffer []byte
	isCut  bool  // the response is longer than whole, and the rest is dropped
	begun  bool  // part of the response arrived
	broken error // why it broke off; io.EOF: it did not
}

// Open makes one attempt at an ask, and returns when the API begins to respond. The ask is the payload of the attempt. If the call is nil, the outcome
// says why there is no response. After an error response, the outcome says what becomes of the job, and the call holds the response: pass it on, or try
// again later. Otherwise the outcome has no result yet: [Call.Close] returns it.
func (w *Worker) Open(ctx context.Context, attempt *shaper.Attempt, ask *Ask) (*Call, shaper.Outcome) {
	within, cancel := context.WithCancelCause(ctx)
	ask.request.isOf(w.config, attempt)
	whole := *attempt
	whole.Payload = ask.Body
	answer, outcome := w.http.Open(within, &whole)
	if answer == nil {
		cancel(nil)
		return nil, outcome
	}
	c := &Call{
		Status: answer.StatusCode, Header: answer.Header, worker: w, ask: ask, attempt: attempt, answer: answer, ctx: within, cancel: cancel,
		buffer: make([]byte, readSize),
	}
	c.idle = time.AfterFunc(w.config.idle(), func() { cancel(errIdle) })
	if answer.StatusCode/100 == 2 {
		if kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";"); strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
			c.stream = &stream{api: w.config.API, hides: ask.hides, takes: ask.Memory}
			w.metrics.streams(attempt.Bucket, 1)
		}
		return c, shaper.Outcome{}
	}
	var err error
	c.whole, err = io.ReadAll(io.LimitReader(answer.Body, maxFault))
	c.isCut = true
	if c.unread = c.whole; err != nil || len(c.whole) < maxFault {
		c.broken = cmp.Or(err, io.EOF)
	}
	if c.verdict = outcome; !isReplaced(outcome) {
		c.verdict = refineOutcome(w.config.HTTP.Policy, w.config.HTTP.Policy.Judge(c.response()), c.whole)
	}
	c.verdict.Body = workers.Snippet(c.whole)
	if w.config.API == Anthropic {
		c.verdict.Used = shaper.Units{}
	}
	return c, c.verdict
}

// isReplaced reports whether the API refused credentials that were replaced meanwhile: see [httpworker.Worker.Open].
func isReplaced(o shaper.Outcome) bool { return o.Reason == workers.ReasonCredentials }

// Attempt returns the attempt of the call.
func (c *Call) Attempt() *shaper.Attempt { return c.attempt }

// Next returns the next bytes for the client as soon as they arrive, and [io.EOF] after the last. Another error says why the response broke off. The
// bytes are valid until the next call of Next.
func (c *Call) Next() ([]byte, error) {
	if len(c.unread) > 0 {
		part := c.unread
		c.unread = nil
		return part, nil
	}
	for c.broken == nil {
		n, err := c.answer.Body.Read(c.buffer)
		c.idle.Reset(c.worker.config.idle())
		if n > 0 && !c.begun {
			c.begun = true
			c.worker.metrics.firstByte(c.attempt)
		}
		c.broken = err
		if part := c.pass(c.buffer[:n]); len(part) > 0 {
			return part, nil
		}
	}
	if cause := context.Cause(c.ctx); cause != nil && !errors.Is(c.broken, io.EOF) {
		return nil, cause
	}
	return nil, c.broken
}

// pass reads a part of the response, and returns the bytes to pass on.
func (c *Call) pass(part []byte) []byte {
	if c.stream == nil {
		c.keep(part)
		return part
	}
	passed := c.stream.pass(part)
	if c.broken != nil {
		passed = append(passed, c.stream.rest()...)
	}
	return passed
}

// keep keeps a part of a response that does not stream, as long as there is memory for it. After that nothing is kept.
func (c *Call) keep(part []byte) {
	if c.isCut || len(part) == 0 {
		return
	}
	need, room := len(c.whole)+len(part), cap(c.whole)
	if need > maxAnswer {
		need, c.isCut = maxAnswer, true
	}
	if need > room {
		larger := min(max(need, 2*room), maxAnswer)
		if c.ask.Memory != nil && !c.ask.Memory(larger-room) {
			c.isCut = true
			return
		}
		c.whole = append(make([]byte, 0, larger), c.whole...)
	}
	c.whole = append(c.whole, part[:need-len(c.whole)]...)
}

// Close ends the call and returns its outcome, with its usage. If the response has not ended, Close cancels the call.
func (c *Call) Close() shaper.Outcome {
	c.idle.Stop()
	cause := context.Cause(c.ctx)
	c.cancel(nil)
	c.answer.Close()
	if c.verdict.Result != 0 {
		return c.verdict
	}
	outcome, by := shaper.Done(c.Status), byProvider
	switch isWhole := errors.Is(c.broken, io.EOF); {
	case isWhole && c.stream != nil && c.stream.fault != nil:
		outcome = judgeAs(c.worker.config.HTTP.Policy, c.response(), c.stream.fault.named(), "the error "+c.stream.fault.said()+" once it had begun")
		outcome.Reason = ReasonStreamError
	case isWhole:
		outcome = c.outcome()
	case errors.Is(cause, ErrClientGone):
		by = byClient
	case cause != nil && !errors.Is(cause, errIdle), c.broken == nil: // the lease was lost, or the process stops
		by = byTundish
	default:
		outcome = shaper.Retry(ReasonCut, fmt.Sprintf("the answer broke off: %v", cmp.Or(cause, c.broken)))
		outcome.Status, outcome.Signal = c.Status, shaper.SignalFailed
	}
	c.worker.metrics.ended(c.attempt.Bucket, by)
	if c.stream != nil {
		c.worker.metrics.streams(c.attempt.Bucket, -1)
	}
	if outcome.Used != nil && (c.stream == nil || c.stream.text == 0 && c.stream.usage == nil) { // a fault, and no output before it
		return outcome
	}
	c.worker.account(c.attempt, c.ask, c.spent(), &outcome)
	return outcome
}

// Reasons of streamed responses, in addition to the reasons of package workers.
const (
	ReasonCut         = "answer_cut"   // it broke off
	ReasonStreamError = "stream_error" // an error event in a stream that had begun
)

// outcome returns the outcome of a whole response with a success status. A fault has used nothing. A request that asks no model, such as a poll, may
// report the fault of another one.
func (c *Call) outcome() shaper.Outcome {
	r := c.response()
	outcome := c.worker.config.HTTP.Policy.Judge(r)
	isUnread := c.isCut && len(c.whole) == 0 // there was no memory: the response had a body
	if outcome.Result == shaper.ResultDone && c.stream == nil && c.ask.request.asks != asksNothing && !isUnread {
		if fault, ok := judged(c.worker.config.HTTP.Policy, r); ok {
			outcome = fault
		}
	}
	if outcome.Result != shaper.ResultDone {
		outcome.Used = shaper.Units{}
	}
	return outcome
}

// response returns the part of the response that was read, for a policy to judge.
func (c *Call) response() *workers.Response {
	return &workers.Response{Status: c.Status, Header: c.Header, Body: c.whole, At: time.Now(), Number: c.attempt.Number}
}

// spent returns the usage of the call.
func (c *Call) spent() spent {
	if c.stream != nil {
		return c.worker.config.chargeStream(c.ask.request, c.stream, c.worker.learned)
	}
	return c.worker.config.charge(c.ask.request, &shaper.Answer{Body: c.whole, Cut: c.isCut || !errors.Is(c.broken, io.EOF)}, c.worker.learned)
}
