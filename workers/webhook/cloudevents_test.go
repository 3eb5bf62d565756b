package webhook

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// events is a receiver that reads each delivery by the SDK of CloudEvents and keeps the last.
func events(t *testing.T) (url string, last func() (*cloudevents.Event, http.Header)) {
	t.Helper()
	type received struct {
		event  *cloudevents.Event
		header http.Header
	}
	all := make(chan received, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		e, err := cehttp.NewEventFromHTTPRequest(r)
		if err == nil {
			err = e.Validate()
		}
		if err != nil {
			t.Errorf("the SDK reads no event: %v", err)
			return
		}
		all <- received{e, r.Header}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() (*cloudevents.Event, http.Header) {
		t.Helper()
		select {
		case r := <-all:
			return r.event, r.header
		default:
			t.Fatal("no event was received")
			return nil, nil
		}
	}
}

func eventWorker(t *testing.T, url string, format Format, change func(*Config)) *Worker {
	t.Helper()
	return newWorker(t, func(c *Config) {
		c.URL, c.Format, c.CloudEvents = url, format, CloudEvents{Source: "https://example.com/orders", Type: "com.example.order"}
		if change != nil {
			change(c)
		}
	})
}

var bothFormats = []Format{FormatCloudEvents, FormatStructured}

// The SDK of CloudEvents reads the attributes and the payload, in both modes alike.
func TestEvents(t *testing.T) {
	t.Parallel()
	url, last := events(t)
	enqueued := time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC)
	for name, tt := range map[string]struct {
		headers                       map[string][]string
		payload                       string
		at                            time.Time
		kind, subject, content, dated string
	}{
		"defaults":        {nil, `{"n":1}`, time.Time{}, "com.example.order", "", "application/json", ""},
		"the job's own":   {map[string][]string{"ce-type": {"order.paid"}, "CE-Subject": {"order/17"}}, `{"n":1}`, time.Time{}, "order.paid", "order/17", "application/json", ""},
		"its time":        {nil, `[]`, enqueued, "com.example.order", "", "application/json", "2026-03-01T12:00:00.25Z"},
		"blanks and more": {nil, " {\"n\" : 1.0,\n \"s\":\"<\u00e9>\"} ", time.Time{}, "com.example.order", "", "application/json", ""},
		"another JSON":    {map[string][]string{"content-type": {"application/vnd.acme+json; charset=utf-8"}}, `{"n":1}`, time.Time{}, "com.example.order", "", "application/vnd.acme+json; charset=utf-8", ""},
		"capitals":        {map[string][]string{"content-type": {"Application/JSON"}}, `{"n":1}`, time.Time{}, "com.example.order", "", "Application/JSON", ""},
		"a charset":       {map[string][]string{"content-type": {"application/json; charset=utf-8"}}, `{"n":1}`, time.Time{}, "com.example.order", "", "application/json; charset=utf-8", ""},
		"text":            {map[string][]string{"Content-Type": {"text/plain"}}, `"text"`, time.Time{}, "com.example.order", "", "text/plain", ""},
		"no JSON":         {nil, "\xff\x00 {", time.Time{}, "com.example.order", "", "application/json", ""},
		"JSON, not UTF-8": {nil, "\"\xff\"", time.Time{}, "com.example.order", "", "application/json", ""},
		"a trace":         {map[string][]string{"traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}, `{"n":1}`, time.Time{}, "com.example.order", "", "application/json", ""},
	} {
		for _, format := range bothFormats {
			w := eventWorker(t, url, format, nil)
			attempt := newAttempt("")
			attempt.Headers, attempt.Payload, attempt.Enqueued = tt.headers, []byte(tt.payload), tt.at
			want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
			e, header := last()
			dated := ""
			if !e.Time().IsZero() {
				dated = e.Time().Format(time.RFC3339Nano)
			}
			got := []string{e.SpecVersion(), e.ID(), e.Source(), e.Type(), e.Subject(), e.DataContentType(), dated}
			if want := []string{"1.0", "job-1", "https://example.com/orders", tt.kind, tt.subject, tt.content, tt.dated}; !slices.Equal(got, want) {
				t.Errorf("%s, %s: attributes %q, want %q", name, format, got, want)
			}
			if data := string(e.Data()); data != tt.payload && (format == FormatCloudEvents || strings.TrimSpace(data) != strings.TrimSpace(tt.payload)) {
				t.Errorf("%s, %s: data %q, want %q", name, format, data, tt.payload)
			}
			if header.Get("webhook-id") != "job-1" || header.Get("traceparent") != strings.Join(tt.headers["traceparent"], "") {
				t.Errorf("%s, %s: headers %v", name, format, header)
			}
			if ce := header.Get("Ce-Id") + header.Get("Ce-Type") + header.Get("Ce-Subject"); (ce != "") != (format == FormatCloudEvents) {
				t.Errorf("%s, %s: headers %v", name, format, header)
			}
		}
	}
}

// The body of the structured mode: the payload stands in it byte for byte, and the signature covers it.
func TestStructuredEvent(t *testing.T) {
	t.Parallel()
	url, last := receiver(t)
	for payload, data := range map[string]string{
		" {\"n\" : 1.0, \"s\":\"<\u00e9>\"}\n": `"data": {"n" : 1.0, "s":"<` + "\u00e9" + `>"}` + "\n",
		"\x00":                                 `"data_base64":"AA=="`,
	} {
		w := eventWorker(t, url, FormatStructured, func(c *Config) { c.Secrets = []string{secretA} })
		attempt := newAttempt("")
		attempt.Payload, attempt.Headers = []byte(payload), map[string][]string{"ce-subject": {"order%2017"}}
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		got := last()
		const head = `{"specversion":"1.0","id":"job-1","source":"https://example.com/orders","type":"com.example.order","subject":"order 17","datacontenttype":"application/json",`
		if string(got.body) != head+data+"}" || !json.Valid(got.body) {
			t.Errorf("body %s", got.body)
		}
		if got.header.Get("Content-Type") != "application/cloudevents+json" || !verifies(t, secretA, got) {
			t.Errorf("headers %v", got.header)
		}
	}
}

// In the binary mode the signature covers the payload, and percent signs are encoded as the binding says. The SDK for Go
// does not decode them, so this looks at the headers.
func TestBinaryEvent(t *testing.T) {
	t.Parallel()
	url, last := receiver(t)
	w := eventWorker(t, url, FormatCloudEvents, func(c *Config) {
		c.Secrets, c.CloudEvents = []string{secretA}, CloudEvents{Source: "/a%20b"}
	})
	attempt := newAttempt("")
	attempt.Headers = map[string][]string{"ce-subject": {"order%2017"}}
	want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
	got := last()
	for header, value := range map[string]string{
		"Ce-Specversion": "1.0", "Ce-Id": "job-1", "Ce-Source": "/a%2520b", "Ce-Type": DefaultEventType, "Ce-Subject": "order%2017", "Ce-Time": "",
		"Content-Type": "application/json",
	} {
		must.Equal(t, got.header.Get(header), value, "%s", header)
	}
	if string(got.body) != `{"n":1}` || !verifies(t, secretA, got) {
		t.Errorf("%s with %v", got.body, got.header)
	}
}

// A flow's headers name attributes too, over the job's, where they may go.
func TestEventOfAFlow(t *testing.T) {
	t.Parallel()
	url, last := events(t)
	for _, format := range bothFormats {
		w := eventWorker(t, url, format, nil)
		attempt := newAttempt("")
		attempt.Headers = map[string][]string{"ce-type": {"job"}}
		attempt.Own = &shaper.OwnDelivery{Headers: map[string]string{"CE-Type": "flow"}}
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultDone, "")
		if e, _ := last(); e.Type() != "flow" {
			t.Errorf("%s: type %s", format, e.Type())
		}
		attempt.Own = &shaper.OwnDelivery{Headers: map[string]string{"ce-id": "1"}}
		want(t, w.Deliver(t.Context(), attempt), shaper.ResultRetry, shaper.ReasonFlowSettings)
	}
}

// Headers with which an event would not be one are refused at enqueue and by the worker. Deliveries that are no events take them.
func TestHeadersOfEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, value string
		valid       bool
	}{
		{"ce-type", "com.example.order", true},
		{"Ce-Subject", "order/17", true},
		{"CE-SUBJECT", "gr%C3%BC%C3%9Fe%2C%20100%25", true},
		{"ce-subject", "", false},
		{"ce-subject", "order 17", false},
		{"ce-subject", "gr\u00fc\u00dfe", false},
		{"ce-subject", `"17"`, false},
		{"ce-subject", "100%", false},
		{"ce-subject", "%zz", false},
		{"ce-subject", "%00", false},
		{"ce-subject", "%FF", false},
		{"ce-subject", "%C2%80", false},
		{"ce-id", "17", false},
		{"Ce-Source", "/", false},
		{"ce-specversion", "1.0", false},
		{"ce-time", "2026-03-01T12:00:00Z", false},
		{"ce-partitionkey", "7", false},
		{"cetera", "7", true},
		{"Content-Type", "application/json", true},
		{"content-type", "application/CloudEvents+json; charset=utf-8", false},
		{"Content-Type", "application/cloudevents-batch+json", false},
		{"Content-Type", "", false},
		{"Content-Type", "text", true},
		{"Content-Type", ";;", false},
		{"Content-Type", "text/plain; charset", false},
	} {
		job := &shaper.Job{Payload: []byte("1"), URL: "https://example.com/", Headers: map[string][]string{tt.name: {tt.value}}}
		config := DefaultConfig()
		if err := config.CheckJob(job); err != nil {
			t.Errorf("%s: %s: %v in the format standard", tt.name, tt.value, err)
		}
		for _, format := range bothFormats {
			config.Format = format
			faults := fields(t, config.CheckJob(job))
			if valid := len(faults) == 0; valid != tt.valid || !valid && faults[0] != "headers."+tt.name {
				t.Errorf("%s: %q in the format %s: faults of %q", tt.name, tt.value, format, faults)
			}
		}
	}
	w := eventWorker(t, "http://127.0.0.1:1/", FormatStructured, nil)
	attempt := newAttempt("")
	attempt.Headers = map[string][]string{"ce-type": {"a", "b"}}
	want(t, w.Deliver(t.Context(), attempt), shaper.ResultDead, workers.ReasonInvalid)
}
