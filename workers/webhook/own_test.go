package webhook

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// received is a receiver that keeps the last request.
func received(t *testing.T) (server *httptest.Server, last func() *http.Request) {
	t.Helper()
	requests := make(chan *http.Request, 1)
	server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requests <- r }))
	t.Cleanup(server.Close)
	return server, func() *http.Request {
		t.Helper()
		select {
		case r := <-requests:
			return r
		default:
			t.Fatal("nothing was received")
			return nil
		}
	}
}

// A job goes to its own URL, else to its flow's, else to the bucket's; and credentials
// go to the configured origin alone.
func TestCredentialsOfAFlow(t *testing.T) {
	t.Parallel()
	servers, last := map[string]string{}, map[string]func() *http.Request{}
	for _, name := range []string{"flow", "bucket", "other"} {
		server, received := received(t)
		servers[name], last[name] = server.URL, received
	}
	for _, tt := range []struct {
		job, flow, bucket string // whose server, and a path; "" none
		arrives           string
		trusted           bool
	}{
		{"", "flow/f", "bucket/b", "flow/f", true},
		{"", "flow/f", "", "flow/f", true},
		{"", "", "bucket/b", "bucket/b", true},
		{"flow/j", "flow/f", "bucket/b", "flow/j", true},
		{"bucket/j", "flow/f", "bucket/b", "bucket/j", false},
		{"other/j", "flow/f", "bucket/b", "other/j", false},
		{"bucket/j", "", "bucket/b", "bucket/j", true},
		{"other/j", "", "bucket/b", "other/j", false},
		{"other/j", "", "", "other/j", false}, // nothing is configured
	} {
		urlOf := func(place string) string {
			name, path, ok := strings.Cut(place, "/")
			if !ok {
				return ""
			}
			return servers[name] + "/" + path
		}
		w := newWorker(t, func(c *Config) { c.URL = urlOf(tt.bucket) })
		attempt := newAttempt(urlOf(tt.job))
		attempt.Headers = map[string][]string{"authorization": {"of the job"}, "x-job": {"1"}}
		attempt.Own = &shaper.OwnDelivery{
			URL: urlOf(tt.flow), Headers: map[string]string{"Authorization": "of the flow", "X-Flow": "1"}, Secrets: []string{secretA, secretB},
		}
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		server, path, _ := strings.Cut(tt.arrives, "/")
		r := last[server]()
		if r.URL.Path != "/"+path || r.Header.Get("X-Job") != "1" {
			t.Errorf("%+v: arrived at %s with %v", tt, r.URL, r.Header)
		}
		authorization, own, signature := "of the job", "", ""
		if tt.trusted {
			var seconds int64
			_, _ = fmt.Sscan(r.Header.Get("webhook-timestamp"), &seconds)
			at := time.Unix(seconds, 0)
			authorization, own = "of the flow", "1"
			signature = sign(t, secretA, "job-1", at, attempt.Payload) + " " + sign(t, secretB, "job-1", at, attempt.Payload)
		}
		if got := []string{r.Header.Get("Authorization"), r.Header.Get("X-Flow"), r.Header.Get("Webhook-Signature")}; !slices.Equal(got, []string{authorization, own, signature}) {
			t.Errorf("%+v: credentials %q", tt, got)
		}
	}
}

// An origin is scheme, host and port, spelled in any way.
func TestTrustedOrigin(t *testing.T) {
	t.Parallel()
	for to, trusted := range map[string]bool{
		"https://example.com/other":              true,
		"https://EXAMPLE.com:443/":               true,
		"http://example.com/":                    false,
		"http://example.com:443/":                false,
		"https://example.com:444/":               false,
		"https://example.com./":                  true,
		"https://example.com:0443/":              true,
		"https://ｅxample。com/":                   true,
		"https://sub.example.com/":               false,
		"https://example.com.evil.org/":          false,
		"https://evil.org/?https://example.com/": false,
	} {
		config := DefaultConfig()
		o, err := config.ownOf(&shaper.OwnDelivery{URL: "https://example.com/in"})
		target, err2 := outgoing.ParseURL(to)
		if err != nil || err2 != nil || o.trusts(target.Origin) != trusted {
			t.Errorf("%s: %v, %v, want trusted: %t", to, err, err2, trusted)
		}
	}
}

// A flow without secrets is not signed, and one with nothing is as none.
func TestFlowWithoutSecrets(t *testing.T) {
	t.Parallel()
	server, last := received(t)
	for _, own := range []*shaper.OwnDelivery{nil, {}, {URL: server.URL}} {
		w := newWorker(t, func(c *Config) { c.URL, c.JobURL = server.URL, false })
		attempt := newAttempt("")
		attempt.Own = own
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		if r := last(); r.Header["Webhook-Signature"] != nil {
			t.Errorf("signed: %v", r.Header)
		}
	}
}

// A flow's URL does not open what jobs may not name, and is guarded as any other.
func TestFlowURLIsGuarded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("was reached") }))
	t.Cleanup(server.Close)
	attempt := newAttempt("")
	attempt.Own = &shaper.OwnDelivery{URL: server.URL, Secrets: []string{secretA}}
	w := newWorker(t, func(c *Config) { c.AllowNetworks = nil })
	want(t, w.Deliver(t.Context(), attempt), shaper.ResultDead, workers.ReasonBlockedAddress)

	attempt = newAttempt(server.URL)
	attempt.Own = &shaper.OwnDelivery{URL: server.URL}
	w = newWorker(t, func(c *Config) { c.URL, c.JobURL = server.URL, false })
	want(t, w.Deliver(t.Context(), attempt), shaper.ResultDead, workers.ReasonInvalid)
}

// What no worker can use keeps the job for later, sends nothing and tells no secret.
func TestFaultsOfAFlow(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("was reached") }))
	t.Cleanup(server.Close)
	w := newWorker(t, func(c *Config) { c.URL = server.URL })
	for field, own := range map[string]*shaper.OwnDelivery{
		"url":                       {URL: "https://hunter2@example.com/"},
		"headers.Host":              {Headers: map[string]string{"Host": "hunter2"}},
		"headers.X":                 {Headers: map[string]string{"X": "hunter2\r\nY: 1"}},
		"headers.webhook-signature": {Headers: map[string]string{"webhook-signature": "hunter2"}},
		"secrets":                   {Secrets: []string{secretA, "hunter2"}},
	} {
		if got := fields(t, DefaultConfig().CheckFlow(own)); !slices.Equal(got, []string{field}) {
			t.Errorf("%s: faults of %q", field, got)
		}
		for _, url := range []string{"", server.URL} {
			departed := false
			attempt := withJob(shaper.NewAttempt(time.Now(), time.Hour, func(time.Duration) { departed = true }), url)
			attempt.Own = own
			outcome := w.Deliver(t.Context(), attempt)
			want(t, outcome, shaper.ResultRetry, shaper.ReasonFlowSettings)
			if departed || !strings.Contains(outcome.Detail, field) || strings.Contains(outcome.Detail, "hunter2") {
				t.Errorf("%s: departed: %t, detail %q", field, departed, outcome.Detail)
			}
		}
	}
}
