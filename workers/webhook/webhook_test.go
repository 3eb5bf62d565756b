package webhook

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// newWorker makes a worker that may call the test's servers.
func newWorker(t *testing.T, change func(*Config)) *Worker {
	t.Helper()
	config := DefaultConfig()
	config.AllowNetworks = loopback
	if change != nil {
		change(&config)
	}
	w := must.Get(New(config))(t)
	t.Cleanup(w.Close)
	return w
}

// trust makes the worker take the certificate of a test's TLS server.
func trust(w *Worker, server *httptest.Server) {
	transport := w.sender.Transport()
	transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
}

// lastConnection returns a function that closes the connection that the worker has made last.
func lastConnection(w *Worker) (hangUp func()) {
	var last net.Conn
	note := func(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			last = conn
			return conn, err
		}
	}
	transport := w.sender.Transport()
	transport.DialContext, transport.DialTLSContext = note(transport.DialContext), note(transport.DialTLSContext)
	return func() { _ = last.Close() }
}

// newAttempt has a permit that stays good for longer than any test.
func newAttempt(url string) *shaper.Attempt {
	return withJob(shaper.NewAttempt(time.Now(), time.Hour, nil), url)
}

func withJob(a *shaper.Attempt, url string) *shaper.Attempt {
	a.Bucket, a.ID, a.URL, a.Payload = "webhooks", "job-1", url, []byte(`{"n":1}`)
	return a
}

func want(t *testing.T, got shaper.Outcome, result shaper.Result, reason string) {
	t.Helper()
	if got.Result != result || got.Reason != reason {
		t.Errorf("got %+v, want %s %q", got, result, reason)
	}
}

func TestDeliver(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		rw.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(rw, "thanks\x00")
	}))
	t.Cleanup(server.Close)

	before := time.Now().Unix()
	attempt := newAttempt(server.URL + "/in?a=b")
	attempt.Number = 3
	attempt.Headers = map[string][]string{"x-custom": {"1"}, "authorization": {"Bearer of-the-job"}, "X-Twice": {"a", "b"}}
	outcome := newWorker(t, nil).Deliver(t.Context(), attempt)

	want(t, outcome, shaper.ResultDone, "")
	if outcome.Status != 202 || outcome.Body != "thanks " {
		t.Errorf("outcome %+v", outcome)
	}
	if got.Method != "POST" || got.RequestURI != "/in?a=b" || string(body) != `{"n":1}` || got.ContentLength != 7 {
		t.Errorf("the receiver got %s %s, %d bytes: %s", got.Method, got.RequestURI, got.ContentLength, body)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "tundish/1", "Webhook-Id": "job-1",
		"Tundish-Attempt": "3", "X-Custom": "1", "Authorization": "Bearer of-the-job", "Accept-Encoding": "",
	} {
		must.Equal(t, got.Header.Get(name), value, "header %s", name)
	}
	if lines := got.Header.Values("X-Twice"); !slices.Equal(lines, []string{"a", "b"}) {
		t.Errorf("X-Twice has the lines %q", lines)
	}
	if at, _ := strconv.ParseInt(got.Header.Get("Webhook-Timestamp"), 10, 64); at < before || at > time.Now().Unix() {
		t.Errorf("webhook-timestamp %d is not now", at)
	}
}

func TestDeliverToTheBucketsURL(t *testing.T) {
	t.Parallel()
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	t.Cleanup(server.Close)
	w := newWorker(t, func(c *Config) { c.URL, c.JobURL = server.URL+"/bucket", false })

	attempt := newAttempt("")
	attempt.Method = "PUT"
	attempt.Headers = map[string][]string{"Content-Type": {"text/plain"}}
	want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
	if got.Method != "PUT" || got.URL.Path != "/bucket" || got.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("the receiver got %s %s %v", got.Method, got.URL, got.Header)
	}

	// A job from before the setting changed.
	want(t, w.Deliver(t.Context(), newAttempt(server.URL)), shaper.ResultDead, workers.ReasonInvalid)
}

func TestDeliverClassifies(t *testing.T) {
	t.Parallel()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests++
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		rw.Header().Set("Location", "/?status=200")
		rw.Header().Set("Retry-After", "7")
		rw.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	patient, strict := newWorker(t, nil), newWorker(t, func(c *Config) { c.Policy = workers.Policy{Statuses: []string{"5xx"}} })
	for i, tt := range []struct {
		worker *Worker
		status int
		result shaper.Result
		reason string
		wait   time.Duration
		signal shaper.Signal
	}{
		{patient, 204, shaper.ResultDone, "", 0, shaper.SignalAccepted},
		{patient, 301, shaper.ResultRetry, workers.ReasonRedirect, 7 * time.Second, shaper.SignalAccepted},
		{patient, 307, shaper.ResultRetry, workers.ReasonRedirect, 7 * time.Second, shaper.SignalAccepted},
		{patient, 404, shaper.ResultHeld, "http_404", 7 * time.Second, shaper.SignalThrottled},
		{patient, 410, shaper.ResultDead, workers.ReasonGone, 0, shaper.SignalAccepted},
		{patient, 429, shaper.ResultHeld, "http_429", 7 * time.Second, shaper.SignalThrottled},
		{patient, 503, shaper.ResultHeld, "http_503", 7 * time.Second, shaper.SignalThrottled},
		{patient, 500, shaper.ResultHeld, "http_500", 7 * time.Second, shaper.SignalThrottled},
		{strict, 307, shaper.ResultDead, workers.ReasonRedirect, 0, shaper.SignalAccepted},
		{strict, 404, shaper.ResultDead, "http_404", 0, shaper.SignalAccepted},
		{strict, 429, shaper.ResultDead, "http_429", 0, shaper.SignalThrottled},
		{strict, 503, shaper.ResultRetry, "http_503", 7 * time.Second, shaper.SignalThrottled},
	} {
		outcome := tt.worker.Deliver(t.Context(), newAttempt(server.URL+"/?status="+strconv.Itoa(tt.status)))
		want(t, outcome, tt.result, tt.reason)
		if outcome.RetryAfter != tt.wait || outcome.Status != tt.status || outcome.Signal != tt.signal {
			t.Errorf("%d: %+v", tt.status, outcome)
		}
		if requests != i+1 {
			t.Fatalf("%d: %d requests after %d deliveries", tt.status, requests, i+1)
		}
	}
}

func TestDeliverRefusesWhatAdmissionWould(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	for name, change := range map[string]func(*shaper.Attempt){
		"no url":       func(a *shaper.Attempt) { a.URL = "" },
		"file url":     func(a *shaper.Attempt) { a.URL = "file:///etc/passwd" },
		"method":       func(a *shaper.Attempt) { a.Method = "CONNECT" },
		"method split": func(a *shaper.Attempt) { a.Method = "POST / HTTP/1.1\r\nX: " },
		"header split": func(a *shaper.Attempt) { a.Headers = map[string][]string{"X": {"a\r\nHost: b"}} },
		"host":         func(a *shaper.Attempt) { a.Headers = map[string][]string{"Host": {"internal"}} },
	} {
		departed := false
		attempt := withJob(shaper.NewAttempt(time.Now(), time.Hour, func(time.Duration) { departed = true }), "http://127.0.0.1:1/")
		change(attempt)
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDead, workers.ReasonInvalid)
		if departed {
			t.Errorf("%s: used its permit", name)
		}
	}
}

// The worker connects to the place that names the flow, however the URL spells it.
func TestSpellingsOfAHostAreOnePlace(t *testing.T) {
	t.Parallel()
	server, last := received(t)
	w := newWorker(t, nil)
	at := strings.TrimPrefix(server.URL, "http://")
	_, port, _ := strings.Cut(at, ":")
	for _, host := range []string{at, "127.0.0.1.:0" + port, "①②⑦.⓪.⓪.①:" + port, "[::ffff:127.0.0.1]:" + port} {
		want(t, w.Deliver(t.Context(), newAttempt("http://"+host+"/x")), shaper.ResultDone, "")
		must.Equal(t, last().Host, at, "%s was called as", host)
	}
	if _, n := w.sender.Kept(); n != 1 {
		t.Errorf("%d origins, want 1", n)
	}
}
