package test

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// otlpReceiver is a collector that keeps spans.
type otlpReceiver struct {
	mu     sync.Mutex
	spans  []*tracepb.Span
	faults []error
}

func (o *otlpReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request collector.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err == nil && r.URL.Path != "/v1/traces" {
		err = fmt.Errorf("path %s", r.URL.Path)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.faults = append(o.faults, err)
	}
	for _, of := range request.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			o.spans = append(o.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// named are the spans of a name, in the order of their beginnings.
func (o *otlpReceiver) named(name string) []*tracepb.Span {
	o.mu.Lock()
	defer o.mu.Unlock()
	some := slices.DeleteFunc(slices.Clone(o.spans), func(s *tracepb.Span) bool { return s.GetName() != name })
	slices.SortFunc(some, func(a, b *tracepb.Span) int { return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()) })
	return some
}

func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// trace has the programs of a test export to a collector, at once.
func trace(t *testing.T, url string) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
}

// TestTraces: a collector sees three attempts and a redrive, each linked to the enqueue, and that the receiver was in the trace of the attempt.
func TestTraces(t *testing.T) {
	var otlp otlpReceiver
	server := httptest.NewServer(&otlp)
	defer server.Close()
	trace(t, server.URL)
	const ofClient = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var works atomic.Bool
	var mu sync.Mutex
	var parents []string
	s := start(t, redistest.Start(t), harness.Plan{
		Rate: 100, Dispatchers: 1,
		Respond: func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
			mu.Lock()
			parents = append(parents, r.Header.Get("Traceparent"))
			attempt := len(parents)
			mu.Unlock()
			switch {
			case attempt < 3:
				http.Error(w, "not now", http.StatusInternalServerError)
			case !works.Load():
				http.Error(w, "never", http.StatusGone)
			}
		},
	})
	request, err := http.NewRequest(http.MethodPost, s.API+"/v1/buckets/"+harness.BucketName+"/jobs", strings.NewReader(`{"id":"job","payload":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", ofClient)
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != http.StatusAccepted {
		t.Fatal(response, err)
	}
	response.Body.Close()
	harness.Await(t, 10*time.Second, "the job is dead", func() bool { return s.Inspector.ZCard(t.Context(), s.Key("dead")).Val() == 1 })
	works.Store(true)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(harness.Programs, "dispatcher"), "dead", "redrive", harness.BucketName, "job", "--config", s.Config).CombinedOutput(); err != nil {
		t.Fatal(string(out), err)
	}
	attempts := "process " + harness.BucketName
	harness.Await(t, 10*time.Second, "four attempts are exported", func() bool { return len(otlp.named(attempts)) == 4 && len(otlp.named("POST")) == 4 })
	harness.Await(t, 10*time.Second, "the send is exported", func() bool { return len(otlp.named("send "+harness.BucketName)) == 1 })
	send := otlp.named("send " + harness.BucketName)[0]
	if hex.EncodeToString(send.GetTraceId()) != ofClient[3:35] || hex.EncodeToString(send.GetParentSpanId()) != ofClient[36:52] || send.GetKind() != tracepb.Span_SPAN_KIND_PRODUCER {
		t.Errorf("the send is no child of the client's span: %v", send)
	}
	posts := otlp.named("POST")
	for i, span := range otlp.named(attempts) {
		links := span.GetLinks()
		if len(span.GetParentSpanId()) > 0 || len(links) != 1 || !bytes.Equal(links[0].GetSpanId(), send.GetSpanId()) || !bytes.Equal(links[0].GetTraceId(), send.GetTraceId()) {
			t.Errorf("attempt %d is no root with a link to the send: %v", i, span)
		}
		want := []string{"retry", "retry", "dead", "done"}[i]
		if got := attribute(span, "tundish.outcome"); got != want || attribute(span, "messaging.message.id") != "job" {
			t.Errorf("attempt %d: outcome %q, want %q", i, got, want)
		}
		if !bytes.Equal(posts[i].GetParentSpanId(), span.GetSpanId()) || posts[i].GetKind() != tracepb.Span_SPAN_KIND_CLIENT || attribute(posts[i], "url.full") != s.Receiver.URL {
			t.Errorf("request %d is no child of its attempt, or shows more than an origin: %v", i, posts[i])
		}
		if got := parents[i]; !strings.HasPrefix(got, "00-"+hex.EncodeToString(span.GetTraceId())+"-"+hex.EncodeToString(posts[i].GetSpanId())) {
			t.Errorf("attempt %d: the receiver got %q", i, got)
		}
	}
	s.wantExemplars()
	if len(otlp.faults) > 0 {
		t.Error(otlp.faults)
	}
}

// wantExemplars wants trace ids for a scraper that asks for OpenMetrics, and the old format for others.
func (s *system) wantExemplars() {
	s.T.Helper()
	for accept, wants := range map[string]bool{"": false, "text/plain": false, "application/openmetrics-text; version=1.0.0": true} {
		request, err := http.NewRequest(http.MethodGet, s.OpsOf[0]+"/metrics", nil)
		if err != nil {
			s.T.Fatal(err)
		}
		request.Header.Set("Accept", accept)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			s.T.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if got := strings.Contains(string(text), "trace_id"); err != nil || got != wants {
			s.T.Errorf("Accept %q: exemplars %t, %v", accept, got, err)
		}
		if isText := strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain; version=0.0.4"); isText == wants {
			s.T.Errorf("Accept %q: %s", accept, response.Header.Get("Content-Type"))
		}
	}
}

// TestTracesOfABatch: a batch of 50 is one span with 50 links, one to each enqueue, and one request.
func TestTracesOfABatch(t *testing.T) {
	const jobs = 50
	var otlp otlpReceiver
	server := httptest.NewServer(&otlp)
	defer server.Close()
	trace(t, server.URL)
	s := start(t, redistest.Start(t), harness.Plan{
		Rate: 100, Dispatchers: 1, Bucket: fmt.Sprintf("[buckets.batch]\nmax_size = %d\nmax_wait = \"1m\"", jobs),
		Respond: func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
			var items []harness.SentItem
			var results []itemStatus
			_ = json.NewDecoder(r.Body).Decode(&items)
			for _, item := range items {
				results = append(results, itemStatus{item.ID, http.StatusOK})
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"results": results})
		},
	})
	s.Post("job", jobs)
	harness.Await(t, 10*time.Second, "all is exported", func() bool {
		return len(otlp.named("send "+harness.BucketName)) == jobs && len(otlp.named("process "+harness.BucketName)) > 0 && len(otlp.named("POST")) > 0
	})
	sends := map[string]bool{}
	for _, send := range otlp.named("send " + harness.BucketName) {
		sends[string(send.GetSpanId())] = true
	}
	batches := otlp.named("process " + harness.BucketName)
	if len(batches) != 1 || len(batches[0].GetLinks()) != jobs || batches[0].GetDroppedLinksCount() > 0 {
		t.Fatalf("%d batches: want one with %d links", len(batches), jobs)
	}
	for _, link := range batches[0].GetLinks() {
		if !sends[string(link.GetSpanId())] {
			t.Errorf("a link leads to no send, or two lead to one: %v", link)
		}
		delete(sends, string(link.GetSpanId()))
	}
}

// TestCollectorAway: a collector that hangs, or is not there, holds up neither deliveries nor a stop.
func TestCollectorAway(t *testing.T) {
	hung := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}))
	defer hangs.Close()
	defer close(hung)
	for name, url := range map[string]string{"hangs": hangs.URL, "is away": "http://" + redistest.FreeAddr(t)} {
		t.Run(name, func(t *testing.T) {
			trace(t, url)
			t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64") // less than there are spans
			t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "32")
			const rate, jobs = 500, 1000
			s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 1})
			s.Post("job", jobs)
			r := s.AwaitDelivered(20 * time.Second)
			harness.Report(t, rate, r)
			if r.Err() != nil {
				t.Fatal(r.Err())
			}
			for _, p := range append(s.Dispatchers, s.Producer) {
				began := time.Now()
				p.Stop(t)
				took := time.Since(began)
				t.Logf("stopped within %s", took.Round(time.Millisecond))
				if took > 6*time.Second*harness.Patience {
					t.Errorf("the stop took %s", took)
				}
			}
		})
	}
}
