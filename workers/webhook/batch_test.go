package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// batchServer answers batches, and tells of the last request.
func batchServer(t *testing.T, answer string) (url string, last func() (header http.Header, body string)) {
	t.Helper()
	requests := make(chan *http.Request, 8)
	bodies := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- r
		bodies <- string(body)
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() (http.Header, string) { return (<-requests).Header, <-bodies }
}

// newBatch is a batch of jobs, which departs once.
func newBatch(url string, departures *int, payloads ...string) *shaper.Batch {
	batch := &shaper.Batch{ID: "batch_c1_7"}
	for i, payload := range payloads {
		a := shaper.NewAttempt(time.Now(), time.Hour, func(time.Duration) { *departures++ })
		if i > 0 {
			a.Permit(time.Now(), time.Hour, nil)
		}
		a.ID, a.URL, a.Payload, a.Enqueued = fmt.Sprint("job-", i), url, []byte(payload), time.Unix(1e9, 0)
		a.Headers = map[string][]string{"X-Tenant": {"t"}, "Traceparent": {fmt.Sprint("00-", i)}}
		batch.Attempts = append(batch.Attempts, a)
	}
	return batch
}

// A batch is one request with an id of its own, and the signature is over the whole body.
func TestBatchIsOneSignedRequest(t *testing.T) {
	t.Parallel()
	secret := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	url, last := batchServer(t, `{"results":[{"id":"job-0","status":200},{"id":"job-1","status":409}]}`)
	w := newWorker(t, func(c *Config) {
		c.URL, c.Secrets, c.Batch = url, []string{secret}, workers.BatchNDJSON
		c.Policy = workers.Policy{Statuses: []string{"5xx"}}
	})
	departures := 0
	outcomes := w.DeliverBatch(t.Context(), newBatch("", &departures, `{"n":0}`, `{"n":1}`, `{"n":2}`))
	h, body := last()
	if got, want := body, "{\"id\":\"job-0\",\"attempt\":1,\"traceparent\":\"00-0\",\"data\":{\"n\":0}}\n{\"id\":\"job-1\",\"attempt\":1,\"traceparent\":\"00-1\",\"data\":{\"n\":1}}\n{\"id\":\"job-2\",\"attempt\":1,\"traceparent\":\"00-2\",\"data\":{\"n\":2}}\n"; got != want {
		t.Errorf("the body is\n%swant\n%s", got, want)
	}
	if h.Get("Webhook-Id") != "batch_c1_7" || h.Get("Content-Type") != "application/x-ndjson" || h.Get("X-Tenant") != "t" || h.Get("Traceparent") != "" {
		t.Errorf("the headers are %v", h)
	}
	at, _ := strconv.ParseInt(h.Get("Webhook-Timestamp"), 10, 64)
	received := Received{ID: h.Get("Webhook-Id"), Timestamp: time.Unix(at, 0), Signature: h.Get("Webhook-Signature"), Body: []byte(body)}
	if _, err := Verify([]string{secret}, received, time.Now(), time.Minute); err != nil {
		t.Errorf("the signature: %v", err)
	}
	if departures != 1 || outcomes[0].Result != shaper.ResultDone || outcomes[1].Reason != "http_409" || outcomes[2].Reason != workers.ReasonBatchAnswer {
		t.Errorf("%d departures, outcomes %+v", departures, outcomes)
	}
}

// With either format of CloudEvents a batch has their JSON batch format.
func TestBatchOfEvents(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{FormatCloudEvents, FormatStructured} {
		url, last := batchServer(t, "")
		w := newWorker(t, func(c *Config) {
			c.URL, c.Format, c.CloudEvents.Source = url, format, "/orders"
		})
		departures := 0
		batch := newBatch("", &departures, `{"n":0}`, `not JSON`)
		for _, a := range batch.Attempts {
			a.Headers["Ce-Type"] = []string{"order%20made"}
		}
		for _, outcome := range w.DeliverBatch(t.Context(), batch) {
			want(t, outcome, shaper.ResultDone, "")
		}
		h, body := last()
		var events []cloudevents.Event
		if err := json.Unmarshal([]byte(body), &events); err != nil || len(events) != 2 {
			t.Fatalf("%s: %v: %s", format, err, body)
		}
		for i, e := range events {
			if err := e.Validate(); err != nil || e.ID() != fmt.Sprint("job-", i) || e.Type() != "order made" || e.Source() != "/orders" || e.Time().Unix() != 1e9 {
				t.Errorf("%s: event %d is %v, %v", format, i, e, err)
			}
		}
		if string(events[0].Data()) != `{"n":0}` || string(events[1].Data()) != "not JSON" {
			t.Errorf("%s: the data is %s and %s", format, events[0].Data(), events[1].Data())
		}
		if h.Get("Content-Type") != "application/cloudevents-batch+json" || h.Get("Webhook-Id") != "batch_c1_7" || strings.Contains(fmt.Sprint(h), "Ce-") {
			t.Errorf("%s: the headers are %v", format, h)
		}
	}
}

// A batch that cannot be sent, or whose permit is void, is so as a whole.
func TestBatchThatIsNotSent(t *testing.T) {
	t.Parallel()
	url, _ := batchServer(t, "")
	w := newWorker(t, func(c *Config) { c.URL = url })
	departures := 0
	late := newBatch("", &departures, "1", "2")
	late.Attempts[0].Permit(time.Now().Add(-time.Hour), time.Second, nil)
	for _, outcome := range w.DeliverBatch(t.Context(), late) {
		want(t, outcome, shaper.ResultReturned, workers.ReasonLate)
	}
	for _, outcome := range w.DeliverBatch(t.Context(), newBatch("ftp://example.com", &departures, "1", "2")) {
		want(t, outcome, shaper.ResultDead, workers.ReasonInvalid)
	}
}
