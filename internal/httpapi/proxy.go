package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
	client "github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/llm"
)

// ProxySettings say how the shaping proxy serves a bucket.
type ProxySettings struct {
	// Timeout is how long a client waits for its answer.
	Timeout time.Duration

	// Credentials are the headers, in small letters, that the bucket's own credentials take: what a client sends there is a
	// key of this server, or nothing.
	Credentials []string
}

// The proxy takes requests as the client of an API makes them, and answers what the API answers. In between each is a job that is sent
// once. The process that took the request waits for its result.
//
//	client ──► proxy ──► bucket ──► dispatcher ──► API
//	       ◄────────── result ◄──────────┘

const (
	proxyPath = "/v1/proxy/"

	// proxyTries is how many jobs may have one Idempotency-Key; all but the last were taken back unsent.
	proxyTries = 16
)

// cutProxied cuts off the path of a request to the proxy what is the API's. It may be any text: the routes would answer "//" or "/../"
// with a redirect, and decode the rest.
func cutProxied(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.EscapedPath(), proxyPath)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		bucket, rest, below := strings.Cut(path, "/")
		if !admission.ValidName(bucket) {
			newFault(codeUnknownBucket, "%q is no bucket's name: the path is %s, the bucket, and what the API wants", bucket, proxyPath).write(w, r)
			return
		}
		if below {
			rest = "/" + rest
		}
		if r.URL.RawQuery != "" || r.URL.ForceQuery {
			rest += "?" + r.URL.RawQuery
		}
		short := r.WithContext(context.WithValue(r.Context(), proxiedKey{}, proxied{bucket, rest}))
		short.URL = &url.URL{Path: proxyPath + bucket}
		next.ServeHTTP(w, short)
	})
}

// proxy answers what an API answers: any method of /v1/proxy/{bucket}/….
func (p *producer) proxy(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	if p.doors != nil {
		if buckets := p.doors(r.PathValue("bucket")); len(buckets) > 0 {
			p.door(w, r, buckets)
			return
		}
	}
	if key := keyOf(r); key != nil {
		if f := authorize(key, roles(apikey.RoleEnqueue), r.PathValue("bucket")); f != nil {
			f.write(w, r)
			return
		}
	}
	bucket, f := p.bucket(r)
	settings, served := ProxySettings{}, false
	if f == nil && p.proxies != nil {
		settings, served = p.proxies(bucket.Name)
		settings.Timeout = clientWait(r.Header, settings.Timeout)
	}
	if f == nil && !served {
		f = newFault(codeNoProxy, "bucket %q is no proxy: set http.serve_proxy, of a bucket whose worker is http", bucket.Name)
	}
	if f == nil && r.Header.Get("Upgrade") != "" {
		f = invalid([]*shaper.FieldError{{Field: "Upgrade", Reason: "is not possible here: a request has one answer"}})
	}
	var body []byte
	if f == nil {
		body, f = readBody(w, r, bucket.MaxPayload, fmt.Sprintf("max_payload of bucket %q bounds it", bucket.Name))
	}
	var job shaper.Job
	if f == nil {
		job, f = p.proxiedJob(r, &bucket, settings, body)
	}
	if f == nil && !usageOf(r).mayWait() {
		f = usageOf(r).of.tooMany("wait for answers")
	}
	if f != nil {
		f.write(w, r)
		return
	}
	p.serveProxied(w, r, job, began, settings.Timeout)
}

// serveProxied has the job of a request done, and answers what the API answers. The job of an Idempotency-Key may be taken back, or expire,
// because of another client under that key: then it is enqueued once more, for as long as this client waits.
func (p *producer) serveProxied(w http.ResponseWriter, r *http.Request, job shaper.Job, began time.Time, timeout time.Duration) {
	left := func() time.Duration { return timeout - time.Since(began) }
	for n := 1; ; n++ {
		receipt, awaited, err := p.awaitProxied(r, job)
		if err != nil {
			p.unknownOutcome(r, []shaper.Receipt{receipt}, err).write(w)
			return
		}
		w.Header().Set(llm.HeaderJob, receipt.ID)
		if receipt.Refusal != nil {
			awaited.Stop()
			p.refuseProxied(w, r, &receipt, timeout)
			return
		}
		result, err := p.waitFor(w, r, awaited, left())
		if err == nil {
			awaited.Stop()
			p.answerProxied(w, r, &result)
			return
		}
		if errors.Is(err, shaper.ErrNoResult) && result.State == shaper.StateDone {
			awaited.Stop()
			newFault(codeAnswerNotKept, "a request with this Idempotency-Key was made before as job %q, and its answer is not kept any more: "+
				"use another key, or raise result_retention", receipt.ID).write(w, r)
			return
		}
		if job.ID == "" || n == proxyTries || left() < time.Millisecond || p.draining.begun() || !p.unsent(r, &receipt, err, result.State) {
			p.giveUpProxied(w, r, &receipt, awaited, left())
			return
		}
		awaited.Stop()
		job.MaxWait = left().Truncate(time.Microsecond)
	}
}

// unsent reports whether the job of a request ended without being sent: it was taken back, or it expired.
func (p *producer) unsent(r *http.Request, receipt *shaper.Receipt, err error, state shaper.State) bool {
	if !errors.Is(err, shaper.ErrNoResult) || r.Context().Err() != nil {
		return false
	}
	if state != shaper.StateDead {
		return state == shaper.StateCancelled
	}
	info, err := p.jobs.Job(context.WithoutCancel(r.Context()), receipt.Bucket, receipt.ID)
	return err == nil && info.Last.Cause == shaper.CauseExpired && info.Attempts == 0
}

// proxiedJob makes the job of a request. What the client sent as credentials, and what is of its connection only, stays here.
func (p *producer) proxiedJob(r *http.Request, bucket *shaper.Bucket, settings ProxySettings, body []byte) (shaper.Job, *fault) {
	key, keyErr := idempotencyKeyOfClient(r.Header)
	job := shaper.Job{
		Method: r.Method, URL: addressOf(r), Headers: forwarded(r.Header, settings.Credentials), Payload: body,
		Once: true, MaxWait: settings.Timeout, ExpiresIn: settings.Timeout + llm.ExpiryMargin,
	}
	sender := p.sender(r, bucket.Name)
	if f := p.complete(&job, nil, sender, bucket, "", keyErr); f != nil {
		return job, f
	}
	if key != "" {
		job.ID = proxiedID(bucket.Name, sender.Caller, key)
	}
	if f := bound(r, bucket, &job); f != nil {
		return job, f
	}
	traceContextOf(r.Header).addTo(&job)
	return job, nil
}

// idempotencyKeyOfClient is the key that the client of an API has given: any text.
func idempotencyKeyOfClient(h http.Header) (string, error) {
	switch values := h.Values("Idempotency-Key"); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	default:
		return "", &shaper.FieldError{Field: "Idempotency-Key", Reason: "is given twice"}
	}
}

// proxiedID names the job of an Idempotency-Key: two callers may use the same key.
func proxiedID(bucket, caller, key string) string {
	sum := sha256.Sum256([]byte(bucket + "\n" + caller + "\n" + key))
	return shaper.ProxyID + hex.EncodeToString(sum[:16])
}

// awaitProxied enqueues a job and waits. The job of an Idempotency-Key may have been taken back unsent, because a client gave up: then the
// next one has another name.
func (p *producer) awaitProxied(r *http.Request, job shaper.Job) (shaper.Receipt, *client.Awaited, error) {
	name := job.ID
	for n := 1; ; n++ {
		receipt, awaited, err := p.jobs.Await(context.WithoutCancel(r.Context()), job)
		if err != nil || receipt.Refusal == nil || receipt.Refusal.Reason != shaper.ReasonIDEnded || n == proxyTries {
			return receipt, awaited, err
		}
		awaited.Stop()
		job.ID = name + "-" + strconv.Itoa(n)
	}
}

func (p *producer) refuseProxied(w http.ResponseWriter, r *http.Request, receipt *shaper.Receipt, timeout time.Duration) {
	nameWait(receipt.Refusal, timeout)
	p.tellReceipt(w, r, receipt)
}

// answerProxied answers what the API has answered.
func (p *producer) answerProxied(w http.ResponseWriter, r *http.Request, result *shaper.JobResult) {
	a := result.Answer
	switch {
	case a == nil && result.Reason == "":
		newFault(codeNoAnswer, "the API was called by job %q, and its answer is not known", result.ID).write(w, r)
		return
	case a == nil:
		newFault(codeNoAnswer, "the API did not answer job %q: %s: %s", result.ID, result.Reason, result.Detail).write(w, r)
		return
	case a.Cut:
		newFault(codeResultTooLarge, "the API has answered job %q with %d, and its answer has more than %d bytes, or broke off: raise max_result of bucket %q",
			result.ID, a.Status, len(a.Body), result.Bucket).write(w, r)
		return
	}
	h := w.Header()
	passHeaders(h, a.Headers)
	switch length := http.Header(a.Headers).Get("Content-Length"); {
	case len(a.Body) > 0:
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	case r.Method == http.MethodHead && length != "":
		h.Set("Content-Length", length) // that of the body which HEAD leaves out
	}
	w.WriteHeader(max(a.Status, http.StatusOK))
	_, _ = w.Write(a.Body) // fails only when the client is gone
}

// giveUpProxied takes back the job of a client that waits no longer, unless another client waits for it here. One that was sent is not
// taken back: if only the server stops, the client gets the answer that is on its way.
func (p *producer) giveUpProxied(w http.ResponseWriter, r *http.Request, receipt *shaper.Receipt, awaited *client.Awaited, left time.Duration) {
	stops := p.draining.begun() && left > 0
	var state shaper.State
	var err error
	shared := !awaited.Stop()
	if !shared {
		state, err = p.jobs.Cancel(context.WithoutCancel(r.Context()), receipt.Bucket, receipt.ID)
	}
	switch {
	case r.Context().Err() != nil:
		return // no client reads an answer
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
	case err == nil && state != shaper.StateInFlight && state != shaper.StateDone:
		newFault(codeNotInTime, "the request waited for too long in bucket %q and was not sent to the API: it was job %q", receipt.Bucket, receipt.ID).write(w, r)
	case stops:
		awaited.Resume()
		defer awaited.Stop()
		ctx, cancel := context.WithTimeout(r.Context(), left)
		defer cancel()
		if result, err := awaited.Result(ctx); err == nil {
			p.answerProxied(w, r, &result)
			return
		}
		fallthrough
	default:
		newFault(codeNotInTime, "the request is under way as job %q of bucket %q, and the API has not answered in time: "+
			"GET /v1/buckets/%s/jobs/%s/result may show the answer", receipt.ID, receipt.Bucket, receipt.Bucket, receipt.ID).write(w, r)
	}
}
