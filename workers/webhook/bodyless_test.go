package webhook

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// callback is a request as a receiver of any method got it.
type callback struct {
	method string
	header http.Header
	body   []byte
	length int64
}

func anyReceiver(t *testing.T) (url string, last func() callback) {
	t.Helper()
	got := make(chan callback, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- callback{r.Method, r.Header, body, r.ContentLength}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() callback { t.Helper(); return <-got }
}

// A GET, a HEAD and a DELETE without a payload go to the job's own URL, signed over an empty body, as the library for JavaScript checks.
func TestRequestsWithoutABody(t *testing.T) {
	t.Parallel()
	url, last := anyReceiver(t)
	w := newWorker(t, func(c *Config) { c.URL, c.Secrets = url, []string{secretA} })
	var deliveries []toVerify
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete} {
		attempt := newAttempt(url + "/run?job=7")
		attempt.Method, attempt.Payload = method, nil
		if err := w.config.CheckJob(&shaper.Job{URL: attempt.URL, Method: method}); err != nil && !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v", method, err)
		}
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		got := last()
		if got.method != method || len(got.body) > 0 || got.length > 0 || got.header.Get("Content-Type") != "" {
			t.Errorf("%s arrives as %+v", method, got)
		}
		headers := map[string]string{}
		for name := range got.header {
			headers[strings.ToLower(name)] = got.header.Get(name)
		}
		deliveries = append(deliveries, toVerify{secretA, headers, ""}, toVerify{secretB, headers, ""})
	}
	if got, want := verifiedByOthers(t, deliveries), []bool{true, false, true, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("the library accepts %v, want %v", got, want)
	}
}

// What has a body needs one, and what has none takes none.
func TestCheckPayload(t *testing.T) {
	t.Parallel()
	config, events := DefaultConfig(), DefaultConfig()
	config.URL, events.URL, events.Format, events.CloudEvents.Source = "https://example.com/", "https://example.com/", FormatStructured, "/a"
	for _, c := range []struct {
		config          Config
		method, payload string
		fault           string
	}{
		{config, "", "1", ""}, {config, "POST", "", "payload"}, {config, "PUT", "", "payload"}, {config, "PATCH", "", "payload"}, {config, "", "", "payload"},
		{config, "GET", "", ""}, {config, "GET", "1", "payload"}, {config, "HEAD", "", ""}, {config, "HEAD", "1", "payload"},
		{config, "DELETE", "", ""}, {config, "DELETE", "1", ""}, {config, "OPTIONS", "1", "method"}, {config, "get", "", "payload method"},
		{events, "GET", "", "method"}, {events, "DELETE", "", "payload"}, {events, "DELETE", "1", ""}, {events, "POST", "1", ""},
	} {
		got := strings.Join(fields(t, c.config.CheckJob(&shaper.Job{Method: c.method, Payload: []byte(c.payload)})), " ")
		must.Equal(t, got, c.fault, "%s %q with %q is at fault in", c.config.Format, c.method, c.payload)
	}
	url, _ := anyReceiver(t)
	attempt := newAttempt(url)
	attempt.Method = http.MethodGet // with a payload, past CheckJob
	if got := newWorker(t, func(*Config) {}).Deliver(t.Context(), attempt); got.Result != shaper.ResultDead || !strings.Contains(got.Detail, "a GET has no body") {
		t.Errorf("a GET with a payload: %+v", got)
	}
}

// An id may have any visible characters. A webhook-id has no dots, as signatures have dots behind it, and two ids stay two.
func TestWebhookIDs(t *testing.T) {
	t.Parallel()
	url, last := anyReceiver(t)
	w := newWorker(t, func(c *Config) { c.URL, c.Secrets = url, []string{secretA} })
	events := newWorker(t, func(c *Config) { c.URL, c.Format, c.CloudEvents.Source = url, FormatCloudEvents, "/a" })
	var deliveries []toVerify
	for id, want := range map[string]string{
		"order-17": "order-17", "partition:1/offset:24": "partition:1/offset:24", "urn:uuid:6e8bc430": "urn:uuid:6e8bc430", "a.b": "a%2Eb", "a%2Eb": "a%252Eb", `"=+;"`: `"=+;"`,
	} {
		attempt := newAttempt("")
		attempt.ID = id
		w.Deliver(t.Context(), attempt)
		got := last()
		must.Equal(t, got.header.Get("Webhook-Id"), want, "%q arrives as", id)
		headers := map[string]string{}
		for name := range got.header {
			headers[strings.ToLower(name)] = got.header.Get(name)
		}
		deliveries = append(deliveries, toVerify{secretA, headers, string(bytes.TrimSpace(got.body))})
		events.Deliver(t.Context(), attempt)
		if ce := last().header.Get("Ce-Id"); strings.NewReplacer("%22", `"`, "%25", "%").Replace(ce) != id || strings.Contains(ce, `"`) {
			t.Errorf("%q is the event %q", id, ce)
		}
	}
	if got := verifiedByOthers(t, deliveries); slices.Contains(got, false) {
		t.Errorf("the library accepts %v of %+v", got, deliveries)
	}
}
