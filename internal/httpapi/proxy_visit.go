package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	client "github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/llm"
)

// Headers of responses, in addition to [llm.HeaderJob]: the bucket and the flow of the request, the flow percent-encoded, and how many seconds it
// waited.
const (
	headerBucket = "Tundish-Bucket"
	headerFlow   = "Tundish-Flow"
	headerWait   = "Tundish-Wait"
	headerModel  = "Tundish-Model" // the fallback's model, in place of the model of the request
)

// proxyVisit is a request to the proxy, from its arrival to its response.
type proxyVisit struct {
	*producer

	w        http.ResponseWriter
	r        *http.Request
	began    time.Time
	settings ProxySettings
}

func (v *proxyVisit) left() time.Duration { return v.settings.Timeout - time.Since(v.began) }

// serve runs the request as a job, and returns the API's response.
//
// An Idempotency-Key identifies the client's operation. A request shares the response of an earlier request with the same key that is under way or
// succeeded (2xx). If the earlier request did not succeed, was cancelled by its client, or expired, the job is enqueued again, for as long as this
// client waits.
func (v *proxyVisit) serve(job shaper.Job) {
	for n := 1; ; n++ {
		receipt, awaited, err := v.await(job)
		if err != nil {
			v.unknownOutcome(v.r, []shaper.Receipt{receipt}, err).write(v.w)
			return
		}
		v.name(&receipt)
		if receipt.Refusal != nil {
			awaited.Stop()
			nameWait(receipt.Refusal, v.settings.Timeout)
			v.tellReceipt(v.w, v.r, &receipt)
			return
		}
		result, err := v.waitFor(v.w, v.r, awaited, v.left())
		again := job.ID != "" && n < proxyTries && v.left() >= time.Millisecond && !v.draining.begun()
		switch {
		case again && hasJoined(&receipt) && isUndone(&result, err):
		case err == nil:
			awaited.Stop()
			v.answer(&result)
			return
		case errors.Is(err, shaper.ErrNoResult) && result.State == shaper.StateDone:
			awaited.Stop()
			newFault(codeAnswerNotKept, "a request with this Idempotency-Key was made before as job %q, and its answer is not kept any more: "+
				"use another key, or raise result_retention", receipt.ID).write(v.w, v.r)
			return
		case errors.Is(err, shaper.ErrNoResult) && result.State == shaper.StateDropped:
			awaited.Stop()
			newFault(codeNoAnswer, "the API was called by job %q, and its answer is not kept: raise results_bytes of bucket %q", receipt.ID, receipt.Bucket).write(v.w, v.r)
			return
		case !again || !v.unsent(&receipt, err, result.State):
			v.giveUp(&receipt, awaited, v.left())
			return
		}
		awaited.Stop()
		job.MaxWait = v.left().Truncate(time.Microsecond)
	}
}

// hasJoined reports whether the job of this request was already under way for another client.
func hasJoined(receipt *shaper.Receipt) bool {
	return receipt.Duplicate && slices.Contains([]shaper.State{shaper.StateQueued, shaper.StateScheduled, shaper.StateInFlight, shaper.StateRetrying}, receipt.State)
}

// isUndone reports whether a job of the proxy has ended without a successful response.
func isUndone(result *shaper.JobResult, err error) bool {
	return (err == nil || errors.Is(err, shaper.ErrNoResult)) && result.State == shaper.StateDropped
}

// name sets the headers that name the job, its bucket and its flow.
func (v *proxyVisit) name(receipt *shaper.Receipt) {
	v.w.Header().Set(llm.HeaderJob, receipt.ID)
	nameWay(v.w.Header(), receipt.Bucket, receipt.Flow)
}

// nameWay sets the headers that name the bucket and the flow of a request.
func nameWay(h http.Header, bucket, flow string) {
	h.Set(headerBucket, bucket)
	if flow != "" {
		h.Set(headerFlow, url.PathEscape(flow))
	}
}

// setWait sets the header with the time that a request waited.
func setWait(h http.Header, wait time.Duration) {
	h.Set(headerWait, strconv.FormatFloat(max(wait, 0).Seconds(), 'f', 3, 64))
}

// unsent reports whether the job of a request ended without being sent: it was taken back, or it expired.
func (v *proxyVisit) unsent(receipt *shaper.Receipt, err error, state shaper.State) bool {
	if !errors.Is(err, shaper.ErrNoResult) || v.r.Context().Err() != nil {
		return false
	}
	if state != shaper.StateDead {
		return state == shaper.StateCancelled
	}
	info, err := v.jobs.Job(context.WithoutCancel(v.r.Context()), receipt.Bucket, receipt.ID)
	return err == nil && info.Last.Cause == shaper.CauseExpired && info.Attempts == 0
}

// await enqueues a job and waits. If the job of an Idempotency-Key is a dead letter, because its client disconnected while it waited, the next job has
// another name.
func (v *proxyVisit) await(job shaper.Job) (shaper.Receipt, *client.Awaited, error) {
	name := job.ID
	for n := 1; ; n++ {
		receipt, awaited, err := v.jobs.Await(context.WithoutCancel(v.r.Context()), job)
		if err != nil || receipt.Refusal == nil || receipt.Refusal.Reason != shaper.ReasonIDEnded || n == proxyTries {
			return receipt, awaited, err
		}
		awaited.Stop()
		job.ID = name + "-" + strconv.Itoa(n)
	}
}

// giveUp cancels the job of a client that no longer waits, unless another client waits for it here. A job that was sent is not cancelled: if only the
// server stops, the client still gets the response.
func (v *proxyVisit) giveUp(receipt *shaper.Receipt, awaited *client.Awaited, left time.Duration) {
	w, r := v.w, v.r
	stops := v.draining.begun() && left > 0
	var state shaper.State
	var err error
	hasHostFault := false
	shared := !awaited.Stop()
	if !shared {
		hasHostFault = r.Context().Err() == nil && v.hasHostFault(receipt)
		state, err = v.jobs.Cancel(context.WithoutCancel(r.Context()), receipt.Bucket, receipt.ID)
	}
	switch {
	case r.Context().Err() != nil:
		return // no client reads a response
	case shared && stops:
		f := newFault(codeOverloaded, "this server stops: send the request again, under the same Idempotency-Key")
		f.RetryAfter = retryStore
		f.write(w, r)
	case shared:
		newFault(codeNotInTime, "the request waits as job %q of bucket %q for another client under its Idempotency-Key: send it again under that key",
			receipt.ID, receipt.Bucket).write(w, r)
	case err == nil && state == shaper.StateCancelled && stops:
		f := newFault(codeOverloaded, "this server stops: the request was not sent to the API, send it again")
		f.RetryAfter = retryStore
		f.write(w, r)
	case err == nil && state == shaper.StateCancelled && hasHostFault:
		localFault(receipt.ID, retryLocal).write(w, r)
	case err == nil && state != shaper.StateInFlight && state != shaper.StateDone && state != shaper.StateDropped:
		newFault(codeNotInTime, "the request waited for too long in bucket %q and was not sent to the API: it was job %q", receipt.Bucket, receipt.ID).write(w, r)
	case !stops && redisconn.FailureOf(err) != redisconn.NoFailure:
		newFault(codeNotInTime, "the request waited for too long as job %q of bucket %q. Redis does not answer, so whether it was sent to the API is not known: "+
			"GET /v1/buckets/%s/jobs/%s says so once Redis answers", receipt.ID, receipt.Bucket, receipt.Bucket, receipt.ID).write(w, r)
	case stops:
		awaited.Resume()
		defer awaited.Stop()
		ctx, cancel := context.WithTimeout(r.Context(), left)
		defer cancel()
		if result, err := awaited.Result(ctx); err == nil {
			v.answer(&result)
			return
		}
		fallthrough
	default:
		newFault(codeNotInTime, "the request is under way as job %q of bucket %q, and the API has not answered in time: "+
			"GET /v1/buckets/%s/jobs/%s/result may show the answer", receipt.ID, receipt.Bucket, receipt.Bucket, receipt.ID).write(w, r)
	}
}

// throttled returns the fault of a call that the API ended by ENHANCE_YOUR_CALM (RFC 9113, 7), the 429 of HTTP/2. The API may have processed the call:
// the client decides whether to send it again.
func throttled(format string, args ...any) *fault {
	f := newFault(codeThrottled, format, args...)
	f.RetryAfter = retryCalm
	return f
}

// hasHostFault reports whether the job of a request was not sent because the hosts of dispatchers could not connect. The last attempt reports it for its
// host. Hosts that cannot connect claim less, so a job may have no attempt. It takes one round trip or two.
func (v *proxyVisit) hasHostFault(receipt *shaper.Receipt) bool {
	ctx := context.WithoutCancel(v.r.Context())
	info, err := v.jobs.Job(ctx, receipt.Bucket, receipt.ID)
	return err == nil && workers.IsLocal(info.Last.Reason) || v.hostFault != nil && v.hostFault(ctx, receipt.Bucket)
}

// localFault returns the fault of a request that was not sent because hosts of this service could not connect. The log has the details: clients need no
// addresses of resolvers.
func localFault(job string, retryAfter int64) *fault {
	f := newFault(codeLocalFault, "job %q was not sent to the API, because this service cannot connect: its DNS resolver, ports, routes or egress proxy "+
		"have a fault that its log names; send the request again", job)
	f.RetryAfter = retryAfter
	return f
}

// answer writes the API's response.
func (v *proxyVisit) answer(result *shaper.JobResult) {
	a, h := result.Answer, v.w.Header()
	if !result.Departed.IsZero() && !result.Enqueued.IsZero() {
		setWait(h, result.Departed.Sub(result.Enqueued))
	}
	switch {
	case a == nil && result.Reason == "":
		newFault(codeNoAnswer, "the API was called by job %q, and its answer is not known", result.ID).write(v.w, v.r)
		return
	case a == nil && result.Reason == workers.ReasonEnhanceYourCalm:
		throttled("the API did not answer job %q and asks for fewer requests: %s", result.ID, result.Detail).write(v.w, v.r)
		return
	case a == nil:
		newFault(codeNoAnswer, "the API did not answer job %q: %s: %s", result.ID, result.Reason, result.Detail).write(v.w, v.r)
		return
	case a.Broken:
		newFault(codeNoAnswer, "the API has answered job %q with %d, and its answer broke off after %d bytes", result.ID, a.Status, len(a.Body)).write(v.w, v.r)
		return
	case a.Cut:
		newFault(codeResultTooLarge, "the API has answered job %q with %d, and its answer has more than %d bytes: raise max_result of bucket %q",
			result.ID, a.Status, len(a.Body), result.Bucket).write(v.w, v.r)
		return
	}
	v.access.wayBack(v.r, cmp.Or(a.Base, v.settings.BaseURL), v.r.URL.Path, v.settings.Credentials...).pass(h, a.Headers, a.Status)
	switch length := http.Header(a.Headers).Get("Content-Length"); {
	case len(a.Body) > 0:
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	case v.r.Method == http.MethodHead && length != "":
		h.Set("Content-Length", length) // the length of the body that HEAD leaves out
	}
	v.w.WriteHeader(max(a.Status, http.StatusOK))
	_, _ = v.w.Write(a.Body) // fails only when the client has disconnected
}
