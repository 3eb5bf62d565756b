package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/httpworker"
)

// proxyRig is an API behind the shaping proxy. Its bucket "api" is quick, "slow" sends one request an hour, "gone" leads nowhere,
// "plain" is no proxy, "pooled" is in the pool "vendor", and "stuck" has no dispatcher.
type proxyRig struct {
	*server
	store   *redistest.Server
	redis   *redis.Client
	handler *httpapi.Handler
	client  *producer.Client
	op      *operator.Operator
	other   *proxyRig // the same of another process
	apiURL  string
	buckets []shaper.Bucket
	keys    []apikey.Key
	trusted []netip.Prefix

	hostFault atomic.Bool // what is said of the hosts of all dispatchers

	mu    sync.Mutex
	calls []*http.Request // as the API got them
	serve http.HandlerFunc
}

const vendorKey = "vendor-secret"

func newProxyRig(t *testing.T, keys ...apikey.Key) *proxyRig {
	t.Helper()
	return newProxyRigOf(t, func(*shaper.Bucket, *httpworker.Config) {}, keys...)
}

// newProxyRigOf is newProxyRig with other settings of its buckets and their workers.
func newProxyRigOf(t *testing.T, change func(*shaper.Bucket, *httpworker.Config), keys ...apikey.Key) *proxyRig {
	t.Helper()
	p := &proxyRig{server: &server{t: t}, serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		call := r.Clone(context.WithoutCancel(r.Context()))
		call.Body = io.NopCloser(bytes.NewReader(body))
		p.calls = append(p.calls, call)
		serve := p.serve
		p.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		serve(w, r)
	}))
	t.Cleanup(api.Close)
	p.apiURL = api.URL
	store := redistest.Start(t)
	p.redis = store.Client()
	var buckets, dispatched []shaper.Bucket
	workers := map[string]shaper.Worker{}
	for _, name := range []string{"api", "slow", "gone", "plain", "pooled", "stuck"} {
		b, config := shaper.DefaultBucket(), httpworker.DefaultConfig()
		b.Name, b.Rate, b.Adapt.Scope = name, rateOf(t, "1000/s"), shaper.ScopeBucket
		b.MaxPayload, b.Results.MaxBody = 1000, 2000
		b.Adapt.Floor = 100
		config.BaseURL, config.Auth.Bearer = api.URL+"/base?fixed=1", vendorKey
		config.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		switch name {
		case "slow":
			b.Rate = rateOf(t, "1/h")
		case "pooled":
			b.Pool, b.Adapt.Scope = &shaper.Pool{Name: "vendor", Rate: b.Rate}, shaper.ScopePool
		case "gone":
			config.BaseURL, b.Breaker.Failures = "http://127.0.0.1:1/", 0
		}
		change(&b, &config)
		buckets = append(buckets, b)
		if name == "stuck" {
			continue
		}
		w := must.Get(httpworker.New(config))(t)
		t.Cleanup(w.Close)
		dispatched, workers[name] = append(dispatched, b), w
	}
	dispatch(t, store, dispatched, workers)
	p.store = store
	p.op = newOperator(t, connect(t, store.URL()), nil, buckets)
	p.buckets, p.keys = buckets, keys
	p.serveProxy(connect(t, store.URL()), buckets, keys)
	p.other = &proxyRig{server: &server{t: t}, redis: p.redis, apiURL: p.apiURL}
	p.other.serveProxy(connect(t, store.URL()), buckets, keys)
	return p
}

// trusting is the same of a process that trusts proxies of this machine.
func (p *proxyRig) trusting() *proxyRig {
	other := &proxyRig{server: &server{t: p.t}, redis: p.redis, apiURL: p.apiURL, trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	other.serveProxy(p.redis, p.buckets, p.keys)
	return other
}

// serveProxy starts the API of one process.
func (p *proxyRig) serveProxy(r redis.UniversalClient, buckets []shaper.Bucket, keys []apikey.Key) {
	t := p.t
	client := must.Get(producer.New(producer.Config{Redis: r, Buckets: buckets, Timeout: patience}))(t)
	p.client = client
	p.handler = httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: client, Logger: logTo(t.Output()), Keys: keys, TrustedProxies: p.trusted,
		HostFault: func(context.Context, string) bool { return p.hostFault.Load() },
		CheckJob:  func(_ string, job *shaper.Job) error { return httpworker.DefaultConfig().CheckJob(job) },
		Proxy: func(bucket string) (httpapi.ProxySettings, bool) {
			timeout := 30 * time.Second
			switch bucket {
			case "slow":
				timeout = 2 * time.Hour
			case "stuck":
				timeout = time.Second
			case "gone":
				timeout = 4 * time.Second
			}
			return httpapi.ProxySettings{Timeout: timeout, Priority: shaper.PriorityCritical, First: bucket != "api", Credentials: []string{"x-shop-token"}, BaseURL: p.apiURL + "/base?fixed=1"}, bucket != "plain"
		},
	})
	p.server = serve(t, p.handler)
	t.Cleanup(client.Close)
}

func (p *proxyRig) answerWith(serve http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serve = serve
}

// called takes the calls that the API got since the last time.
func (p *proxyRig) called() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

func TestProxyPassesRequestsOn(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t)
	form := url.Values{"amount": {"7"}, "note": {"a b"}}.Encode()
	for name, tt := range map[string]struct {
		method, path, body string
		headers            []string
		wantPath           string
		wantHeaders        map[string]string
	}{
		"a GET":          {"GET", "/charges/7?expand=a&expand=b", "", nil, "/base/charges/7?fixed=1&expand=a&expand=b", map[string]string{"Authorization": "Bearer " + vendorKey}},
		"the base":       {"GET", "", "", nil, "/base?fixed=1", nil},
		"the base, with": {"GET", "/", "", nil, "/base/?fixed=1", nil},
		"spelled so":     {"DELETE", "/a%2Fb/%C3%A9/c;d?x=%2e%2e", "", nil, "/base/a%2Fb/%C3%A9/c;d?fixed=1&x=%2e%2e", nil},
		"a form":         {"POST", "/charges", form, []string{"Content-Type", "application/x-www-form-urlencoded"}, "/base/charges?fixed=1", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}},
		"bytes":          {"PUT", "/blob", "\x00\xff", []string{"Content-Type", "application/octet-stream"}, "/base/blob?fixed=1", nil},
		"its headers": {"PATCH", "/x", "{}", []string{"X-Custom", "7", "User-Agent", "theirs", "Accept-Encoding", "br, gzip;q=0.8", "Connection", "X-Hop", "X-Hop", "1", "Cookie", "s=1",
			"Tundish-Other", "2", "Proxy-Authorization", "Basic eA=="}, "/base/x?fixed=1",
			map[string]string{"X-Custom": "7", "User-Agent": "theirs", "Accept-Encoding": "gzip", "X-Hop": "", "Cookie": "", "Tundish-Other": "", "Proxy-Authorization": ""}},
	} {
		p.do(tt.method, "/v1/proxy/api"+tt.path, tt.body, tt.headers...).want(200, "")
		calls := p.called()
		if len(calls) != 1 {
			t.Errorf("%s: %d calls", name, len(calls))
			continue
		}
		body, _ := io.ReadAll(calls[0].Body)
		if calls[0].Method != tt.method || calls[0].RequestURI != tt.wantPath || string(body) != tt.body {
			t.Errorf("%s: %s %s %q", name, calls[0].Method, calls[0].RequestURI, body)
		}
		for header, want := range tt.wantHeaders {
			must.Equal(t, calls[0].Header.Get(header), want, "%s: %s is", name, header)
		}
	}
}

func TestProxyPassesAnswersBack(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t)
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = io.WriteString(zip, strings.Repeat("a bomb ", 100_000))
	_ = zip.Close()
	for name, tt := range map[string]struct {
		method  string
		status  int
		body    string
		headers http.Header
	}{
		"found":      {"GET", 200, `{"id":7}`, http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"max-age=60"}}},
		"created":    {"POST", 201, "", http.Header{"Location": {"https://api.example.com/7"}}},
		"no content": {"DELETE", 204, "", nil},
		"moved":      {"GET", 302, "", http.Header{"Location": {"/elsewhere"}}},
		"unchanged":  {"GET", 304, "", http.Header{"Etag": {`"x"`}}},
		"bad":        {"POST", 400, "no", http.Header{"Content-Type": {"text/plain"}}},
		"forbidden":  {"GET", 403, "no", nil},
		"failed":     {"POST", 500, "oops", nil},
		"busy":       {"GET", 503, "", nil},
		"a head":     {"HEAD", 200, "", http.Header{"Content-Length": {"12345"}}},
		"packed":     {"GET", 200, packed.String(), http.Header{"Content-Encoding": {"gzip"}}},
	} {
		p.answerWith(func(w http.ResponseWriter, _ *http.Request) {
			for header, values := range tt.headers {
				w.Header()[header] = values
			}
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		})
		p.http.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		a := p.do(tt.method, "/v1/proxy/api/x", "", "Accept-Encoding", "gzip")
		if a.status != tt.status || a.text != tt.body {
			t.Errorf("%s: %d %q", name, a.status, a.text)
		}
		for header, values := range tt.headers {
			must.Equal(t, cmp.Diff(values, a.header.Values(header)), "", "%s: %s", name, header)
		}
		if a.header.Get("Tundish-Job") == "" || tt.headers.Get("Cache-Control") == "" && a.header.Get("Cache-Control") != "" {
			t.Errorf("%s: %v", name, a.header)
		}
		must.Equal(t, len(p.called()), 1, "%s: calls", name)
	}
	must.Equal(t, p.redis.Exists(t.Context(), stored.Key("api", "dead")).Val(), 0, "there are dead letters")
	p.answerWith(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 2001)) })
	p.do("GET", "/v1/proxy/api/x", "").want(502, "result-too-large")
	p.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "broken off")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	p.do("GET", "/v1/proxy/api/x", "").want(502, "no-answer")
	p.do("GET", "/v1/proxy/gone/x", "").want(502, "no-answer")
}

// A web page of another origin reaches no API, whatever the method and whether the server has keys, and is allowed nothing by what an API says.
func TestProxyAndWebPages(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string][]string{"keyless": nil, "keys": {"Tundish-Key", "ours"}} {
		var keys []apikey.Key
		if headers != nil {
			keys = append(keys, keyOf("ours", []string{"*"}, apikey.RoleEnqueue))
		}
		p := newProxyRig(t, keys...)
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS", "DELETE"} {
			for _, page := range [][]string{{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}} {
				must.Equal(t, p.do(method, "/v1/proxy/api/x", "", slices.Concat(headers, page)...).status, 403, "%s: %s with %v", name, method, page)
			}
		}
		if calls := p.called(); len(calls) > 0 {
			t.Errorf("%s: the API was called", name)
		}
		p.answerWith(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Allow-Credentials", "true")
			h.Set("Content-Security-Policy", "script-src 'self'")
			h.Set("X-Content-Type-Options", "none")
			h.Set("Tundish-Job", "theirs")
			h.Set("Tundish-Other", "theirs")
			h.Set("X-Request-Id", "theirs")
			h.Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<script>")
		})
		for _, page := range [][]string{nil, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}} {
			a := p.do("GET", "/v1/proxy/api/x", "", slices.Concat(headers, page, []string{"X-Request-Id", "ours-1"})...).want(200, "")
			for header, want := range map[string][]string{
				"Access-Control-Allow-Origin": nil, "Access-Control-Allow-Credentials": nil, "X-Content-Type-Options": {"nosniff"},
				"Content-Security-Policy": {"script-src 'self'", "sandbox"}, "X-Request-Id": {"ours-1"}, "Tundish-Other": nil,
			} {
				if got := a.header.Values(header); !slices.Equal(got, want) {
					t.Errorf("%s: %s is %q, want %q", name, header, got, want)
				}
			}
			if ids := a.header.Values("Tundish-Job"); len(ids) != 1 || ids[0] == "theirs" {
				t.Errorf("%s: Tundish-Job is %q", name, ids)
			}
		}
		p.do("GET", "/v1/proxy/api/x", "", slices.Concat(headers, []string{"Transfer_Encoding", "chunked"})...).want(400, "invalid")
	}
}

// Nothing of these reaches the API.
func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	p := newProxyRig(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
		code               string
		headers            []string
	}{
		{"GET", "/v1/proxy/api/../admin", "", 400, "invalid", nil},
		{"GET", "/v1/proxy/api/a/%2e%2e/%2e%2e/x", "", 400, "invalid", nil},
		{"GET", "/v1/proxy/api/a%2f..%2fx", "", 400, "invalid", nil},
		{"GET", "/v1/proxy/api/%252e%252e/x", "", 400, "invalid", nil},
		{"GET", "/v1/proxy/api//evil.example/x", "", 400, "invalid", nil},
		{"GET", "/v1/proxy/api/a//b", "", 400, "invalid", nil},
		{"POST", "/v1/proxy/api/x", strings.Repeat("x", 1001), 413, "too-large", nil},
		{"GET", "/v1/proxy/api/x", "{}", 400, "invalid", nil},
		{"BREW", "/v1/proxy/api/x", "", 400, "invalid", nil},
		{"GET", "/v1/proxy/api/x", "", 400, "invalid", []string{"Upgrade", "websocket", "Connection", "Upgrade"}},
		{"GET", "/v1/proxy/plain/x", "", 404, "no-proxy", nil},
		{"GET", "/v1/proxy/none/x", "", 404, "unknown-bucket", nil},
		{"GET", "/v1/proxy/NO%20NAME/x", "", 404, "unknown-bucket", nil},
		{"GET", "/v1/proxy/", "", 404, "unknown-bucket", nil},
	} {
		p.do(tt.method, tt.path, tt.body, tt.headers...).want(tt.status, tt.code)
	}
	if calls := p.called(); len(calls) > 0 {
		t.Errorf("the API was called: %v", calls[0].RequestURI)
	}
}

// start sends a request to the proxy, which is answered later: its status, 0 if the client went away.
func (p *proxyRig) start(ctx context.Context, bucket string, headers ...string) <-chan int {
	p.t.Helper()
	r := must.Get(http.NewRequestWithContext(ctx, "POST", p.http.URL+"/v1/proxy/"+bucket+"/x", strings.NewReader("{}")))(p.t)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	status := make(chan int, 1)
	go func() {
		response, err := p.http.Client().Do(r)
		if err != nil {
			status <- 0
			return
		}
		_ = response.Body.Close()
		status <- response.StatusCode
	}()
	return status
}

// untilJobs waits until a bucket has so many jobs.
func (p *proxyRig) untilJobs(bucket string, n int64) {
	p.t.Helper()
	for p.redis.HLen(p.t.Context(), stored.Key(bucket, "body")).Val() != n {
		if p.t.Context().Err() != nil {
			p.t.Fatal("the test is over")
		}
	}
}
