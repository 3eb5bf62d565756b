package console_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/console"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/session"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

const patience = time.Minute // with the race detector a page of 8 MiB takes its time

// site is a dispatcher's API with the console.
type site struct {
	t       *testing.T
	url     string
	handler *httpapi.Handler
	redis   redis.UniversalClient
	jobs    *producer.Client
	store   *redistest.Server

	wrongKeys prometheus.Counter
	log       *logText
}

// logText is what a site has logged.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// keyOf is a key whose secret is its name.
func keyOf(name string, buckets []string, roles ...apikey.Role) apikey.Key {
	return apikey.Key{Name: name, Roles: roles, SHA256: [][sha256.Size]byte{sha256.Sum256([]byte(name))}, Buckets: buckets}
}

func newSite(t *testing.T, keys ...apikey.Key) *site {
	t.Helper()
	return newSiteWith(t, console.Config{}, keys...)
}

// newSiteWith is a site with settings of the console.
func newSiteWith(t *testing.T, cfg console.Config, keys ...apikey.Key) *site {
	t.Helper()
	store := redistest.Start(t)
	conn := must.Get(redisconn.Connect(store.URL(), redisconn.Options{Timeout: patience}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	rate := must.Get(admission.ParseRate("1/h"))(t)
	var buckets []shaper.Bucket
	for _, name := range []string{"letters", "flows"} {
		b := shaper.DefaultBucket()
		b.Name, b.Rate, b.MaxPayload = name, rate, shaper.MaxPayloadLimit
		buckets = append(buckets, b)
	}
	buckets = append(buckets, moreBuckets()...)
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	buckets[1].Flow = &flow
	buckets[1].Pool, buckets[1].Weight = &shaper.Pool{Name: "vendor", Rate: admission.Rate{Count: 1000, Per: time.Second, Unit: admission.UnitRequests}, Burst: 1}, 1
	limits := must.Get(admission.NewLimiter(admission.LimiterConfig{Redis: conn, Timeout: patience, Limits: []admission.Limit{{Name: "per-caller", Limit: rate}}}))(t)
	t.Cleanup(limits.Close)
	op, err := operator.New(operator.Config{Redis: conn, Buckets: buckets, Timeout: patience})
	must.OK(t, err)
	s := &site{t: t, redis: conn, store: store, log: &logText{}}
	s.wrongKeys = prometheus.NewCounter(prometheus.CounterOpts{Name: "wrong"})
	if s.jobs, err = producer.New(producer.Config{Redis: conn, Buckets: buckets, Timeout: patience}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.jobs.Close)
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), s.log), nil))
	cfg.Redis, cfg.Name, cfg.Version, cfg.Logger, cfg.Audit = conn, "staging", "v1", log, op.Audit()
	s.handler = httpapi.NewOps(httpapi.OpsConfig{
		Buckets: op, Keys: keys, Logger: log, Limits: limits, BucketLimits: s.jobs, Pages: console.Pages(cfg), Sessions: session.New(conn), WrongKeys: s.wrongKeys,
	})
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *site) enqueue(jobs ...shaper.Job) {
	s.t.Helper()
	receipts := must.Get(s.jobs.Enqueue(s.t.Context(), jobs...))(s.t)
	for _, r := range receipts {
		if r.Refusal != nil {
			s.t.Fatal(r)
		}
	}
}

// visitor is a browser without a script.
type visitor struct {
	*site

	http *http.Client
}

func (s *site) visitor() *visitor {
	s.t.Helper()
	jar := must.Get(cookiejar.New(nil))(s.t)
	transport := &http.Transport{}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &visitor{s, &http.Client{Jar: jar, Transport: transport, Timeout: patience}}
}

// seen is a page that was looked at.
type seen struct {
	status int
	text   string
	header http.Header
	at     string // its path and query
}

func (v *visitor) do(method, path string, form url.Values, headers ...string) seen {
	v.t.Helper()
	if form != nil {
		headers = append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)
	}
	return v.send(method, path, form.Encode(), headers...)
}

func (v *visitor) send(method, path, body string, headers ...string) seen {
	v.t.Helper()
	request := must.Get(http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(body)))(v.t)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := v.http.Do(request)
	must.OK(v.t, err)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(v.t)
	return seen{response.StatusCode, string(text), response.Header, strings.TrimPrefix(response.Request.URL.String(), v.url)}
}

func (v *visitor) get(path string) seen { v.t.Helper(); return v.do(http.MethodGet, path, nil) }

func (v *visitor) post(path string, pairs ...string) seen {
	v.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return v.do(http.MethodPost, path, form)
}

// login logs in with the key of a name.
func (v *visitor) login(key string) seen {
	v.t.Helper()
	return v.post("/console/login", "key", key, "next", "fleet")
}

func (p seen) want(t *testing.T, status int, texts ...string) {
	t.Helper()
	if p.status != status {
		t.Errorf("%s: %d, want %d\n%s", p.at, p.status, status, p.text)
	}
	for _, text := range texts {
		if !strings.Contains(p.text, text) {
			t.Errorf("%s does not say %q\n%s", p.at, text, p.text)
		}
	}
}
