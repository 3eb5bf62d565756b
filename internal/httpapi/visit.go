package httpapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/shaper"
	client "github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/llm"
)

// holdUnnamed is how long the bucket waits after an answer that asks for less and names no time.
const holdUnnamed = time.Second

// serve has the request sent at its slot, and passes on the answer. An API that asks for less is asked again, as long as the client waits.
func (v *visit) serve(job shaper.Job, body []byte) {
	v.patience(v.left())
	waits, cancel := context.WithTimeout(v.r.Context(), v.left())
	defer cancel()
	defer context.AfterFunc(v.draining.ends, cancel)()
	var err error
	v.permit, err = v.doors.Acquire(waits, job)
	if isTooLong(err) {
		if job, isThere := v.fallBack(body); isThere {
			v.permit, err = v.doors.Acquire(waits, job)
		}
	}
	for ; err == nil; err = v.permit.Again(waits) {
		if v.send() {
			return
		}
	}
	v.giveUp(err)
}

// isTooLong reports whether a job was refused because it would wait for too long, or has no place to wait in.
func isTooLong(err error) bool {
	refused, ok := errors.AsType[*client.RefusedError](err)
	return ok && (refused.Receipt.Refusal.Reason == shaper.ReasonWaitTooLong || refused.Receipt.Refusal.Reason == shaper.ReasonBucketFull)
}

// send calls the API, and reports whether the client has got its answer. If not, the request waits for another slot.
func (v *visit) send() (isAnswered bool) {
	ctx, cancel := context.WithCancelCause(v.permit.Context())
	defer cancel(nil)
	defer context.AfterFunc(v.r.Context(), func() { cancel(llm.ErrClientGone) })()
	call, outcome := v.Worker.Open(ctx, v.permit.Attempt(), v.ask)
	switch {
	case call == nil && outcome.Result == shaper.ResultReturned: // nothing was sent
		v.permit.Settle(outcome)
		return false
	case call == nil:
		v.isSent = true
		v.permit.Settle(outcome)
		v.refuse(newFault(codeNoAnswer, "the API did not answer job %q: %s: %s", v.permit.Receipt().ID, outcome.Reason, outcome.Detail))
		return true
	}
	v.isSent = true
	if v.waitsAfter(&outcome) {
		call.Close()
		v.last = call
		v.permit.Settle(outcome)
		return false
	}
	v.relay(call)
	return true
}

// waitsAfter reports whether the request is to wait for another slot after an error answer: the API asks for less, and there is time.
func (v *visit) waitsAfter(outcome *shaper.Outcome) bool {
	if outcome.Signal != shaper.SignalThrottled {
		return false
	}
	outcome.RetryAfter = cmp.Or(outcome.RetryAfter, holdUnnamed)
	outcome.Result = shaper.ResultHeld
	return outcome.RetryAfter < v.left()
}

// relay passes an answer on as it comes. One that breaks off breaks off for the client, too.
func (v *visit) relay(call *llm.Call) {
	usageOf(v.r).releaseBody()
	err := v.pass(call)
	v.settle(call)
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler)
	}
}

// pass passes an answer on, and returns why it has ended: [io.EOF] at its end.
func (v *visit) pass(call *llm.Call) error {
	control := http.NewResponseController(v.w)
	passHeaders(v.w.Header(), call.Header)
	v.w.Header().Set("Tundish-Job", v.permit.Receipt().ID)
	v.w.WriteHeader(max(call.Status, http.StatusOK))
	_ = control.Flush()
	for {
		part, err := call.Next()
		if err != nil {
			return err
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a connection that has no deadlines ends by others
		if _, err = v.w.Write(part); err != nil {
			return err
		}
		_ = control.Flush()
	}
}

// settle ends the job beside the rest of the request: the client does not wait for Redis.
func (v *visit) settle(call *llm.Call) {
	permit, outcome := v.permit, call.Close()
	v.permit = nil
	go func() { // Permits.Close waits for it
		permit.Settle(outcome)
		permit.Cancel() // a job that is held, and whose client has its answer
	}()
}

// patience gives the connection the time that the client waits.
func (v *visit) patience(wait time.Duration) {
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Time{}) // a read only notices that the client disconnects
	_ = control.SetWriteDeadline(time.Now().Add(wait + writeTimeout))
}

// giveUp answers a request that gets no permit in time, or none at all.
func (v *visit) giveUp(err error) {
	var refusal *client.RefusedError
	var ended *client.EndedError
	switch {
	case v.r.Context().Err() != nil: // no client reads an answer
	case v.last != nil:
		_ = v.pass(v.last) // the client may be gone
	case errors.As(err, &refusal):
		nameWait(refusal.Receipt.Refusal, v.timeout)
		v.headers.Set(v.w.Header(), refusal.Receipt.Decisions, time.Now())
		v.refuse(refused(refusal.Receipt.Refusal))
	case errors.As(err, &ended):
		v.refuse(newFault(codeNotInTime, "%v: send the request again", err))
	case v.draining.begun():
		f := newFault(codeOverloaded, "this server stops: the request was not sent to the API, send it again")
		f.RetryAfter = retryStore
		v.refuse(f)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		v.refuse(newFault(codeNotInTime, "the request waited for %s in bucket %q and was not sent to the API", v.timeout, v.Name))
	default:
		v.refuse(v.store.of(v.r, err))
	}
}

// end gives back a permit that is not used.
func (v *visit) end() {
	if v.permit != nil {
		v.permit.Cancel()
	}
}

// refuse answers a fault of this server in the form of the provider, whose client reads it. Once the API was called, the client is told not to try
// again: that would cost as much again.
func (v *visit) refuse(f *fault) {
	f.writeAs(v.Worker.API(), v.isSent, v.w)
}
