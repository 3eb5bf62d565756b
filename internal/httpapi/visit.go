package httpapi

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
	client "github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/llm"
)

// serve sends the request at its slot, and passes on the response.
func (v *visit) serve(job shaper.Job) {
	v.patience(v.left())
	var ended func()
	v.r, ended = v.access.lasts(v.r)
	defer ended()
	ctx, began := v.r.Context(), time.Now()
	waits, cancel := context.WithTimeout(ctx, v.left())
	defer cancel()
	defer context.AfterFunc(v.draining.ends, cancel)()
	answer, err := v.API.Send(ctx, waits, job, v.ask)
	if refusal := tooLong(err); refusal != nil && v.Fallback != nil {
		answer, err = v.sendSoonest(ctx, waits, job, refusal)
	}
	if err != nil {
		v.giveUp(err)
		return
	}
	v.relay(answer, began)
}

// sendSoonest sends a request that would wait in its bucket for longer than fallback_after. It uses the fallback if that sends it sooner, otherwise the
// bucket.
func (v *visit) sendSoonest(ctx, waits context.Context, job shaper.Job, refusal *shaper.Refusal) (answer *llm.Answer, err error) {
	here, isFull := *v, refusal.Reason == shaper.ReasonBucketFull
	if there, isThere := v.fallBack(); isThere {
		if !isFull {
			there.MaxWait = min(there.MaxWait, here.FallbackAfter+refusal.RetryAfter)
		}
		answer, err = v.API.Send(ctx, waits, there, v.ask)
		if isFull || tooLong(err) == nil {
			return answer, err
		}
	}
	*v = here
	job.MaxWait = max(v.left(), time.Microsecond).Truncate(time.Microsecond)
	return v.API.Send(ctx, waits, job, v.ask)
}

// tooLong returns the refusal of a job that would wait for too long, or finds no capacity; otherwise nil.
func tooLong(err error) *shaper.Refusal {
	refused, ok := errors.AsType[*client.RefusedError](err)
	if ok && (refused.Receipt.Refusal.Reason == shaper.ReasonWaitTooLong || refused.Receipt.Refusal.Reason == shaper.ReasonBucketFull) {
		return refused.Receipt.Refusal
	}
	return nil
}

// relay streams a response to the client. If the response breaks off, it breaks off for the client, too. The request arrived when the visit began.
func (v *visit) relay(answer *llm.Answer, began time.Time) {
	v.body = nil
	usageOf(v.r).keepOneBody() // the copy that was sent: net/http keeps it until the response has ended
	err := v.pass(answer, began)
	_ = answer.Close() // it returns nil
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler)
	}
}

// pass passes a response on, and returns why it has ended: [io.EOF] at its end.
func (v *visit) pass(answer *llm.Answer, began time.Time) error {
	control := http.NewResponseController(v.w)
	attempt := answer.Attempt()
	v.wayBack(attempt.Own).pass(v.w.Header(), answer.Header, answer.Status)
	v.w.Header().Set(llm.HeaderJob, answer.JobID)
	nameWay(v.w.Header(), attempt.Bucket, attempt.Flow)
	if v.sent != "" {
		v.w.Header().Set(headerModel, v.sent)
	}
	setWait(v.w.Header(), attempt.Slot().Sub(began))
	v.w.WriteHeader(max(answer.Status, http.StatusOK))
	_ = control.Flush()
	for {
		part, err := answer.Next()
		if err != nil {
			return err
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a connection without deadlines ends by others
		if _, err = v.w.Write(part); err != nil {
			return err
		}
		_ = control.Flush()
	}
}

// wayBack returns the one for a response. own are the settings of the flow for deliveries, nil if it has none.
func (v *visit) wayBack(own *shaper.OwnDelivery) *wayBack {
	base := v.API.Worker.BaseURL()
	if own != nil && own.URL != "" {
		base = own.URL
	}
	return v.access.wayBack(v.r, base, v.pathBack())
}

// pathBack returns the path on this server by which a request without a model reaches the API of this visit: the path of the route, or the path of
// its bucket if the route has several APIs.
func (v *visit) pathBack() string {
	home, alone := RouteBucket{}, v.llmRoutes(v.API.Bucket)
	for _, b := range v.llmRoutes(strings.TrimPrefix(v.r.URL.Path, proxyPath)) {
		if v.mayUse(b.API.Bucket) == nil {
			home = b
			break
		}
	}
	if len(alone) == 1 && alone[0].API.Bucket == v.API.Bucket && home.API != nil && home.API.Worker.BaseURL() != v.API.Worker.BaseURL() {
		return proxyPath + v.API.Bucket
	}
	return v.r.URL.Path
}

// patience extends the connection's deadline by the time that the client waits.
func (v *visit) patience(wait time.Duration) {
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Time{}) // a read only notices that the client disconnects
	_ = control.SetWriteDeadline(time.Now().Add(wait + writeTimeout))
}

// giveUp responds to a request that gets no permit in time, or none at all.
func (v *visit) giveUp(err error) {
	var refusal *client.RefusedError
	var ended *client.EndedError
	var unanswered *llm.NoAnswerError
	var local *llm.LocalFaultError
	switch {
	case isRevoked(v.r):
		newFault(codeUnauthorized, "the key of the request was removed, or lost a right, while the request waited").write(v.w, v.r)
	case v.r.Context().Err() != nil: // no client reads a response
	case errors.As(err, &refusal):
		nameWait(refusal.Receipt.Refusal, v.timeout)
		v.headers.Set(v.w.Header(), refusal.Receipt.Decisions, time.Now())
		refused(refusal.Receipt.Refusal).write(v.w, v.r)
	case errors.As(err, &unanswered) && unanswered.Outcome.Reason == workers.ReasonEnhanceYourCalm:
		throttled("%v", err).write(v.w, v.r)
	case errors.As(err, &unanswered):
		newFault(codeNoAnswer, "%v", err).writeAs(v.API.Worker.API(), true, v.w)
	case errors.As(err, &local):
		localFault(local.JobID, int64(math.Ceil(local.Outcome.RetryIn.Seconds()))).write(v.w, v.r)
	case errors.As(err, &ended):
		newFault(codeNotInTime, "%v: send the request again", err).write(v.w, v.r)
	case v.draining.begun():
		f := newFault(codeOverloaded, "this server stops: the request was not sent to the API, send it again")
		f.RetryAfter = retryStore
		f.write(v.w, v.r)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		newFault(codeNotInTime, "the request waited for %s in bucket %q and was not sent to the API", v.timeout, v.API.Bucket).write(v.w, v.r)
	default:
		v.store.faultOf(v.r, err).write(v.w, v.r)
	}
}
