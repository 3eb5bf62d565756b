package httpapi_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

func rateOf(t *testing.T, text string) admission.Rate {
	t.Helper()
	rate := must.Get(admission.ParseRate(text))(t)
	return rate
}

// buckets are a roomy one, one with limits, one that is soon full, and one
// whose jobs may not name a URL.
func buckets(t *testing.T) []shaper.Bucket {
	t.Helper()
	var all []shaper.Bucket
	for _, name := range []string{"roomy", "limited", "small", "fixed"} {
		b := shaper.DefaultBucket()
		b.Name, b.Rate, b.MaxPayload = name, rateOf(t, "1/h"), 1000
		all = append(all, b)
	}
	all[1].Limits = []admission.Limit{
		{Name: "per-caller", Per: []string{admission.PerCaller}, Limit: rateOf(t, "4/h"), Burst: 3},
		{Name: "everybody", Limit: rateOf(t, "100/m")},
	}
	all[2].Capacity, all[2].ScheduledCapacity = 1, 1
	return all
}

func checkJob(bucket string, job *shaper.Job) error {
	cfg := webhook.DefaultConfig()
	if bucket == "fixed" {
		cfg.URL, cfg.JobURL = "https://example.com/", false
	}
	return cfg.CheckJob(job)
}

func newClient(t *testing.T, r redis.UniversalClient, reg prometheus.Registerer) *producer.Client {
	t.Helper()
	return newClientFor(t, r, reg, patience)
}

func newClientFor(t *testing.T, r redis.UniversalClient, reg prometheus.Registerer, timeout time.Duration) *producer.Client {
	t.Helper()
	client := must.Get(producer.New(producer.Config{Redis: r, Buckets: buckets(t), Timeout: timeout, Registerer: reg}))(t)
	return client
}

func newOperator(t *testing.T, r redis.UniversalClient, reg prometheus.Registerer, buckets []shaper.Bucket) *operator.Operator {
	t.Helper()
	op := must.Get(operator.New(operator.Config{Redis: r, Buckets: buckets, Timeout: patience, Registerer: reg, CheckFlow: func(_ string, own *shaper.OwnDelivery) error { return webhook.DefaultConfig().CheckFlow(own) }}))(t)
	return op
}

func logTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(untilEnd{w}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// untilEnd drops what is written after its test has ended, as the line of wrong keys that comes once a minute.
type untilEnd struct{ io.Writer }

func (w untilEnd) Write(p []byte) (n int, err error) {
	defer func() {
		if recover() != nil {
			n = len(p)
		}
	}()
	return w.Writer.Write(p)
}

// server is an API on a loopback port.
type server struct {
	t    *testing.T
	http *httptest.Server
}

func serve(t *testing.T, handler http.Handler) *server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return &server{t: t, http: s}
}

// producerAPI is the producer's API on a real Redis.
func producerAPI(t *testing.T) (*server, *redistest.Server) {
	t.Helper()
	store := redistest.Start(t)
	return producerAPIOn(t, store.URL(), patience), store
}

// producerAPIOn is that API, which waits so long for a command of Redis.
func producerAPIOn(t *testing.T, url string, timeout time.Duration) *server {
	t.Helper()
	return serve(t, httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: newClientFor(t, connectFor(t, url, timeout), nil, timeout*3/2), CheckJob: checkJob, Logger: logTo(t.Output()),
	}))
}

// patience is how long a test waits for a Redis of its own, whatever else the machine does.
const patience = 10 * time.Second

func connect(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	return connectFor(t, url, patience)
}

// connectFor is a connection that waits so long for a command.
func connectFor(t *testing.T, url string, timeout time.Duration) redis.UniversalClient {
	t.Helper()
	client := must.Get(redisconn.Connect(url, redisconn.Options{Timeout: timeout}))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// answer is a response that has been read.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	text   string
	json   map[string]any // nil if it is none
	took   time.Duration
}

// do sends a request; headers are pairs of name and value. A body is JSON
// unless they say otherwise.
func (s *server) do(method, path, body string, headers ...string) *answer {
	s.t.Helper()
	r := must.Get(http.NewRequestWithContext(s.t.Context(), method, s.http.URL+path, strings.NewReader(body)))(s.t)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	started := time.Now()
	response, err := s.http.Client().Do(r)
	must.OK(s.t, err)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(s.t)
	a := &answer{t: s.t, status: response.StatusCode, header: response.Header, text: string(text), took: time.Since(started)}
	_ = json.Unmarshal(text, &a.json)
	a.wantContract(r)
	return a
}

// want demands a status and, of a problem, a code.
func (a *answer) want(status int, code string) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.text)
	}
	if code == "" {
		return a
	}
	forClient, _ := a.json["error"].(map[string]any) // of the proxy
	if got := a.header.Get("Content-Type"); got != "application/problem+json" && (got != "application/json" || forClient["code"] != code || forClient["message"] != a.json["message"]) {
		a.t.Errorf("Content-Type %q of a problem", got)
	}
	if a.json["code"] != code || a.json["status"] != float64(status) || a.json["title"] == "" || a.json["instance"] == "" {
		a.t.Errorf("want a problem with code %q: %s", code, a.text)
	}
	return a
}

func (a *answer) wantHeader(name, value string) {
	a.t.Helper()
	must.Equal(a.t, a.header.Get(name), value, "%s", name)
}

func (a *answer) has(member string, want any) {
	a.t.Helper()
	if got := a.json[member]; got != want {
		a.t.Errorf("%s is %v, want %v in %s", member, got, want, a.text)
	}
}

func (a *answer) lacks(members ...string) {
	a.t.Helper()
	for _, member := range members {
		if value, ok := a.json[member]; ok {
			a.t.Errorf("%s is %v, want none in %s", member, value, a.text)
		}
	}
}

const jobs = "/v1/buckets/roomy/jobs"

func job(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"payload":{"a":1},"url":"https://example.com/"` + fields + `}`
}
