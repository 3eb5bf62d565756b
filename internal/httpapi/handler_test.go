package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// fake is a store that does what a test says.
type fake struct {
	httpapi.Jobs // nil: what a test does not set must not be called
	bucket       shaper.Bucket
	enqueue      func(ctx context.Context) ([]shaper.Receipt, error)
	cancelled    shaper.State
	headers      []string     // of LimitHeaders
	got          []shaper.Job // that Enqueue was called with last
	info         shaper.JobInfo
}

func (f *fake) Bucket(string) (shaper.Bucket, error) { return f.bucket, nil }
func (f *fake) CurrentName(bucket string) string     { return strings.TrimPrefix(bucket, "first-") }
func (f *fake) Probe(context.Context) error          { return nil }
func (f *fake) OpenBundle(context.Context, string, shaper.Bundle) (shaper.BundleInfo, error) {
	return shaper.BundleInfo{}, shaper.ErrUnknownBundle
}
func (f *fake) Bundle(context.Context, string, string) (shaper.BundleInfo, error) {
	return shaper.BundleInfo{}, shaper.ErrUnknownBundle
}
func (f *fake) LimitHeaders(string) []string { return f.headers }
func (f *fake) Enqueue(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error) {
	f.got = jobs
	return f.enqueue(ctx)
}
func (f *fake) Cancel(context.Context, string, string) (shaper.State, error) { return f.cancelled, nil }
func (f *fake) Job(context.Context, string, string) (shaper.JobInfo, error)  { return f.info, nil }

func serveFake(t *testing.T, f *fake, log *logBuffer) *server {
	t.Helper()
	f.bucket = buckets(t)[0]
	return serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, Logger: logTo(log)}))
}

// logBuffer collects a log.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	api := serveFake(t, &fake{}, &logBuffer{})
	api.do("GET", "/", "").want(404, "unknown-route")
	api.do("GET", "/v1/buckets/roomy/jobs/a/b", "").want(404, "unknown-route")
	api.do("PUT", jobs, job("")).want(405, "method-not-allowed").wantHeader("Allow", "POST")
	api.do("POST", jobs+"/a", job("")).want(405, "method-not-allowed").wantHeader("Allow", "DELETE, GET, HEAD")
	api.do("POST", "/livez", job("")).want(405, "method-not-allowed").wantHeader("Allow", "GET, HEAD")
}

// openapi.yaml lists the paths of both programs: an answer says where a path is served.
func TestRoutesOfTheOtherProgram(t *testing.T) {
	t.Parallel()
	api, ops := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: &fake{}}), httpapi.NewOps(httpapi.OpsConfig{})
	for _, test := range []struct {
		at           http.Handler
		method, path string
		status       int
		code, where  string
	}{
		{api, "POST", "/v1/buckets/roomy/pause", 404, "unknown-route", "this path is served by the operator's API"},
		{api, "GET", "/v1/buckets", 404, "unknown-route", "dispatcher.listen"},
		{api, "GET", jobs, 405, "method-not-allowed", "takes POST here; GET is served by the operator's API"},
		{ops, "POST", jobs, 405, "method-not-allowed", "POST is served by the API of the producer"},
		{ops, "POST", "/v1/limits/per-caller/check", 404, "unknown-route", "producer.listen"},
		{api, "GET", "/v1/nothing", 404, "unknown-route", "the paths are listed in /openapi.yaml"},
		{api, "PUT", "/v1/buckets", 404, "unknown-route", "the paths are listed in /openapi.yaml"},
	} {
		w := request(test.at, "127.0.0.1:9", test.method, "http://localhost"+test.path, "")
		if text := w.Body.String(); w.Code != test.status || !strings.Contains(text, test.code) || !strings.Contains(text, test.where) {
			t.Errorf("%s %s: %s", test.method, test.path, text)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	api := serveFake(t, &fake{}, log)
	a := api.do("GET", "/", "", "X-Request-Id", "trace-1").want(404, "unknown-route")
	a.wantHeader("X-Request-Id", "trace-1")
	a.has("request_id", "trace-1")
	first, odd := api.do("GET", "/livez", ""), api.do("GET", "/livez", "", "X-Request-Id", `a" b`)
	if one, two := first.header.Get("X-Request-Id"), odd.header.Get("X-Request-Id"); len(one) < 20 || len(two) < 20 || one == two {
		t.Errorf("made %q and %q", one, two)
	}
	api.http.Close() // the log is complete then
	if text := log.String(); !strings.Contains(text, "request_id=trace-1 method=GET path=/ status=404") {
		t.Errorf("the log says\n%s", text)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	api := serveFake(t, &fake{enqueue: func(context.Context) ([]shaper.Receipt, error) { panic("s3cret") }}, log)
	a := api.do("POST", jobs, job("")).want(500, "internal")
	if strings.Contains(a.text, "s3cret") || strings.Contains(a.text, "goroutine") {
		t.Errorf("the client sees %s", a.text)
	}
	api.http.Close()
	if text := log.String(); !strings.Contains(text, "panic=s3cret") || !strings.Contains(text, "handler_test.go") {
		t.Errorf("the log says\n%s", text)
	}
}

func TestFaultThatStays(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	api := serveFake(t, &fake{enqueue: func(context.Context) ([]shaper.Receipt, error) { return nil, errors.New("WRONGPASS s3cret") }}, log)
	for range 3 {
		a := api.do("POST", jobs, job("")).want(500, "internal")
		a.wantHeader("Retry-After", "")
		if strings.Contains(a.text, "s3cret") {
			t.Errorf("the client sees %s", a.text)
		}
	}
	must.Equal(t, strings.Count(log.String(), "a call of Redis failed"), 1, "logged times, want once")
}

func TestClientThatGoesAwayUndoesNothing(t *testing.T) {
	t.Parallel()
	ctx, goAway := context.WithCancel(t.Context())
	asked := false
	f := &fake{bucket: buckets(t)[0], enqueue: func(ctx context.Context) ([]shaper.Receipt, error) {
		goAway()
		asked = true
		return make([]shaper.Receipt, 1), ctx.Err()
	}}
	handler := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f})
	r := httptest.NewRequestWithContext(ctx, "POST", jobs, strings.NewReader(job("")))
	r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if !asked || w.Code != http.StatusAccepted {
		t.Errorf("asked %t, status %d: %s", asked, w.Code, w.Body)
	}
}

func TestCancelOfWhatDoesNotWait(t *testing.T) {
	t.Parallel()
	for _, state := range []shaper.State{shaper.StateInFlight, shaper.StateDead, shaper.StateDone} {
		a := serveFake(t, &fake{cancelled: state}, &logBuffer{}).do("DELETE", jobs+"/a", "").want(409, "conflicting-state")
		a.has("state", string(state))
	}
}

func TestPayloadThatIsNoJSON(t *testing.T) {
	t.Parallel()
	info := shaper.JobInfo{ID: "a", Bucket: "roomy", State: shaper.StateRetrying, Payload: []byte{0xff}, Attempts: 2}
	info.Enqueued = info.Enqueued.AddDate(2025, 0, 0)
	info.Due = info.Enqueued
	info.Last = shaper.LastResponse{Status: 500, Reason: "http_500", Body: "oh"}
	a := serveFake(t, &fake{info: info}, &logBuffer{}).do("GET", jobs+"/a", "").want(200, "")
	a.has("payload_base64", "/w==")
	a.has("attempts", float64(2))
	a.has("eta", "2026-01-01T00:00:00Z")
	if last := a.json["last_response"].(map[string]any); last["status"] != float64(500) || last["reason"] != "http_500" {
		t.Errorf("last_response: %v", last)
	}
}
