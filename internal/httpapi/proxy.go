package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// ProxySettings say how the shaping proxy serves a bucket.
type ProxySettings struct {
	// Timeout is how long a client waits for its response.
	Timeout time.Duration

	// Priority is the priority of clients' requests. First makes them depart before all other jobs of their flow, whatever their priority and age.
	Priority shaper.Priority
	First    bool

	// BaseURL is the API's base URL. URLs below it in responses are rewritten to the proxy.
	BaseURL string

	// Credentials are the headers, in lower case, that the bucket's own credentials use: a client's value there is a key of this server, or is dropped.
	Credentials []string
}

// The proxy accepts the requests of an API's client, and returns the API's responses. Each request is a job that is sent once. The process that accepted
// the request waits for its result.
//
//	client ──► proxy ──► bucket ──► dispatcher ──► API
//	       ◄────────── result ◄──────────┘

const (
	proxyPath = "/v1/proxy/"

	// proxyTries bounds the jobs of one Idempotency-Key; all but the last were cancelled unsent.
	proxyTries = 16
)

// cutProxied cuts off the part of a proxy request's path that belongs to the API. It may be any text: the routes would redirect "//" or "/../", and
// decode the rest.
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

// proxy responds with the API's response: any method of /v1/proxy/{bucket}/….
func (p *producer) proxy(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	if p.llmRoutes != nil {
		if buckets := p.llmRoutes(r.PathValue("bucket")); len(buckets) > 0 {
			p.llmRoute(w, r, buckets)
			return
		}
	}
	r.SetPathValue("bucket", p.jobs.CurrentName(r.PathValue("bucket")))
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
	visit := &proxyVisit{producer: p, w: w, r: r, began: began, settings: settings}
	visit.serve(job)
}

// proxiedJob builds the job of a request. It drops the client's credentials and the headers of the connection.
func (p *producer) proxiedJob(r *http.Request, bucket *shaper.Bucket, settings ProxySettings, body []byte) (shaper.Job, *fault) {
	key, keyErr := idempotencyKeyOfClient(r.Header)
	job := shaper.Job{
		Method: r.Method, URL: p.access.withoutKeys(addressOf(r)), Headers: p.access.forwarded(r.Header, settings.Credentials), Payload: body,
		Priority: settings.Priority, First: settings.First, Once: true, MaxWait: settings.Timeout, ExpiresIn: settings.Timeout + llm.ExpiryMargin,
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
