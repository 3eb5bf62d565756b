package httpworker

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

var local = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// seen is a request as an API saw it.
type seen struct {
	method, uri, body string
	header            http.Header
}

// api is a server that notes requests and answers with what it is told to.
type api struct {
	*httptest.Server
	mu     sync.Mutex
	got    []seen
	answer func(r *http.Request) int
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{answer: func(*http.Request) int { return http.StatusOK }}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.got = append(a.got, seen{r.Method, r.RequestURI, string(body), r.Header})
		w.WriteHeader(a.answer(r))
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *api) last() seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.got) == 0 {
		return seen{}
	}
	return a.got[len(a.got)-1]
}

func configOf(a *api) Config {
	c := DefaultConfig()
	c.BaseURL, c.AllowNetworks, c.Timeout = a.URL+"/v1/", local, 10*time.Second
	return c
}

func workerOf(t *testing.T, c Config) *Worker {
	t.Helper()
	w := must.Get(New(c))(t)
	t.Cleanup(w.Close)
	return w
}

func deliver(t *testing.T, w *Worker, change func(*shaper.Attempt)) shaper.Outcome {
	t.Helper()
	a := shaper.NewAttempt(time.Now().Add(time.Minute), time.Minute, nil) // not late, however long a token takes
	a.ID = "job-1"
	if change != nil {
		change(a)
	}
	return w.Deliver(t.Context(), a)
}

// Any method, path, query, headers and body arrive as they were given.
func TestRequests(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	w := workerOf(t, configOf(a))
	for name, c := range map[string]struct {
		attempt shaper.Attempt
		want    seen
	}{
		"get":       {shaper.Attempt{Method: "GET", URL: "/customers/7?expand=a&expand=b"}, seen{"GET", "/v1/customers/7?expand=a&expand=b", "", nil}},
		"head":      {shaper.Attempt{Method: "HEAD", URL: "/x"}, seen{"HEAD", "/v1/x", "", nil}},
		"base":      {shaper.Attempt{Method: "GET"}, seen{"GET", "/v1", "", nil}},
		"slash":     {shaper.Attempt{Method: "GET", URL: "/"}, seen{"GET", "/v1/", "", nil}},
		"query":     {shaper.Attempt{Method: "GET", URL: "?a=b"}, seen{"GET", "/v1?a=b", "", nil}},
		"no method": {shaper.Attempt{URL: "/x", Payload: []byte(`{"a": 1}`)}, seen{"POST", "/v1/x", `{"a": 1}`, http.Header{"Content-Type": {"application/json"}}}},
		"encoded":   {shaper.Attempt{Method: "GET", URL: "/projects/group%2Fproject/x%20y"}, seen{"GET", "/v1/projects/group%2Fproject/x%20y", "", nil}},
		"odd":       {shaper.Attempt{Method: "GET", URL: "/50%25/..a/;v=1/b..;c/d%3B%20/...;"}, seen{"GET", "/v1/50%25/..a/;v=1/b..;c/d%3B%20/...;", "", nil}},
		"form": {
			shaper.Attempt{Method: "PUT", URL: "/x", Payload: []byte("a=b"), Headers: map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}, "X-Many": {"1", "2"}}},
			seen{"PUT", "/v1/x", "a=b", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "X-Many": {"1", "2"}}},
		},
		"own key": {shaper.Attempt{Method: "DELETE", URL: "/x", Headers: map[string][]string{"idempotency-key": {"mine"}}}, seen{"DELETE", "/v1/x", "", http.Header{"Idempotency-Key": {"mine"}}}},
		"bytes":   {shaper.Attempt{URL: "/x", Payload: []byte{0, 255}, Headers: map[string][]string{"Content-Type": {"image/png"}}}, seen{"POST", "/v1/x", "\x00\xff", http.Header{"Content-Type": {"image/png"}}}},
	} {
		outcome := deliver(t, w, func(attempt *shaper.Attempt) {
			attempt.Method, attempt.URL, attempt.Headers, attempt.Payload = c.attempt.Method, c.attempt.URL, c.attempt.Headers, c.attempt.Payload
		})
		got := a.last()
		if outcome.Result != shaper.ResultDone || got.method != c.want.method || got.uri != c.want.uri || got.body != c.want.body {
			t.Errorf("%s: %+v; the API saw %+v", name, outcome, got)
		}
		for header, values := range c.want.header {
			if !slices.Equal(got.header[header], values) {
				t.Errorf("%s: the API saw %s %q", name, header, got.header[header])
			}
		}
		if c.want.header["Idempotency-Key"] == nil && got.header.Get("Idempotency-Key") != "job-1" {
			t.Errorf("%s: Idempotency-Key is %q", name, got.header.Get("Idempotency-Key"))
		}
		if got.body == "" && got.header.Get("Content-Type") != "" {
			t.Errorf("%s: nothing has the type %q", name, got.header.Get("Content-Type"))
		}
	}
}

// No path leads out of the base URL, however it is spelled, and what no API should see is refused before anything is sent.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	config := configOf(a)
	config.Auth.Header = Header{"X-Vendor-Key", "hunter2"}
	w := workerOf(t, config)
	for _, job := range []shaper.Job{
		{URL: "/../admin"}, {URL: "/a/../../admin"}, {URL: "/.."}, {URL: "/a/.."}, {URL: "/./a"}, {URL: "/%2e%2e/admin"}, {URL: "/%2E./admin"},
		{URL: "/a/%2e%2e%2f%2e%2e/admin"}, {URL: "/..%2fadmin"}, {URL: "/%252e%252e/admin"}, {URL: "//evil.example/a"}, {URL: "/a//b"},
		{URL: "/..;/admin"}, {URL: "/a/..;x=1/admin"}, {URL: "/%2e%2e;/admin"}, {URL: "/%2e%2e%3Bx/admin"}, {URL: "/%2e%2e%20/admin"}, {URL: "/%09../admin"},
		{URL: "/.;/admin"}, {URL: "/%25zz/%252e%252e/admin"}, {URL: "/%25%32%65./admin"}, {URL: "/%25252e%25252e/admin"}, {URL: `/..;\admin`},
		{URL: "/..%C2%A0/admin"}, {URL: "/a%5Cb"}, {URL: "/%c0%ae%c0%ae/admin"}, {URL: "/..%00x/admin"}, {URL: "/.%0A./admin"}, {URL: "/a%255C..%255Cb"}, {URL: "/%2525252525252525252541"}, {URL: `/..\admin`}, {URL: `/..%5cadmin`}, {URL: "/a b"}, {URL: "/a\nb"}, {URL: "/a#b"}, {URL: "/ä"},
		{URL: "/%zz"}, {URL: "http://evil.example/"}, {URL: "//evil.example"}, {URL: "evil.example/a"}, {URL: "@evil.example"}, {URL: "/" + strings.Repeat("a", 3000)},
		{URL: "/a", Method: "TRACE"}, {URL: "/a", Method: "CONNECT"}, {URL: "/a", Method: "get"}, {URL: "/a", Method: "GET", Payload: []byte("{}")},
		{URL: "/a", Headers: map[string][]string{"X-Vendor-Key": {"mine"}}}, {URL: "/a", Headers: map[string][]string{"x-vendor-key": {"mine"}}},
		{URL: "/a", Headers: map[string][]string{"Host": {"evil"}}}, {URL: "/a", Headers: map[string][]string{"Transfer-Encoding": {"chunked"}}},
		{URL: "/a", Headers: map[string][]string{"Transfer_Encoding": {"chunked"}}}, {URL: "/a", Headers: map[string][]string{"content_length": {"1"}}},
		{URL: "/a", Headers: map[string][]string{"Tundish_Attempt": {"1"}}}, {URL: "/a", Headers: map[string][]string{"x_vendor_key": {"mine"}}},
		{URL: "/a", Headers: map[string][]string{"X-A": {"a\r\nX-B: b"}}}, {URL: "/a", Headers: map[string][]string{"Content-Length": {"1"}}},
	} {
		if err := config.CheckJob(&job); err == nil {
			t.Errorf("%s %q with %v is taken", job.Method, job.URL, job.Headers)
		}
		outcome := deliver(t, w, func(attempt *shaper.Attempt) {
			attempt.URL, attempt.Method, attempt.Headers, attempt.Payload = job.URL, job.Method, job.Headers, job.Payload
		})
		if outcome.Result != shaper.ResultDead || outcome.Reason != workers.ReasonInvalid {
			t.Errorf("%s %q with %v: %+v", job.Method, job.URL, job.Headers, outcome)
		}
	}
	if got := a.last(); got.method != "" {
		t.Errorf("the API saw %+v", got)
	}
}

// Whatever encodeURIComponent makes of a text that does not climb passes as it is; what else some APIs want has a key.
func TestPathsPassAsTheyAre(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, tt := range []struct {
		path    string
		allowed []string
	}{
		{"/reader/https%3A%2F%2Fexample.com%2Fa%3Fb%3D1", nil}, {"/a%2520b", nil}, {"/k%252Fz", nil}, {"/a%2Fb", nil}, {"/x%25", nil}, {"/a%2F%2Fb", nil}, {"/a/%2Fb", nil},
		{"/gr%C3%BC%C3%9Fe!'()*~", nil}, {"/a%0Ab", nil}, {"/...", nil}, {"/a..b", nil}, {"/100%25%20sure", nil}, {"/a%255Cb", nil}, {"/Robert')%3B", nil},
		{"/obj//key", []string{EmptyParts}}, {"/https://example.com/", []string{EmptyParts}}, {"//evil.example/a", []string{EmptyParts}}, {"/a%5Cb", []string{Backslashes}},
	} {
		config := configOf(a)
		config.AllowInPath = tt.allowed
		if err := config.CheckJob(&shaper.Job{Method: "GET", URL: tt.path}); err != nil {
			t.Errorf("%s: %v", tt.path, err)
		}
		outcome := deliver(t, workerOf(t, config), func(attempt *shaper.Attempt) { attempt.URL, attempt.Method, attempt.Payload = tt.path, "GET", nil })
		if outcome.Result != shaper.ResultDone || a.last().uri != "/v1"+tt.path {
			t.Errorf("%s: %+v arrives as %q", tt.path, outcome, a.last().uri)
		}
		config.AllowInPath = []string{EmptyParts, Backslashes}
		for _, climbs := range []string{"/a//../b", "/a/%5C..%5Cb", "/%2E%2E", "/a%2F..%2Fb"} {
			if config.CheckJob(&shaper.Job{Method: "GET", URL: climbs}) == nil {
				t.Errorf("%s is taken", climbs)
			}
		}
	}
}

func FuzzBelow(f *testing.F) {
	for _, seed := range []string{"/a", "/a/../b", "/%2e%2e/", "?a=b", "//x", `/\x`, "/a%2fb?c#d"} {
		f.Add(seed)
	}
	home := must.Get(outgoing.ParseURL("https://api.example/v1"))(f)
	f.Fuzz(func(t *testing.T, text string) {
		u, err := below(home, text, nil)
		if err != nil {
			return
		}
		if u.Host != "api.example" || u.Scheme != "https" || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q leads to %s", text, u)
		}
		clean := u.JoinPath() // resolves what a server would
		if !strings.HasPrefix(u.Path, "/v1") || !strings.HasPrefix(clean.Path, "/v1") || strings.Contains(u.Path, "..") && strings.Contains("/"+u.Path+"/", "/../") {
			t.Fatalf("%q leads to %s", text, u)
		}
		if req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), http.NoBody); err != nil || req.URL.Host != "api.example" {
			t.Fatalf("%q makes %v: %v", text, req, err)
		}
	})
}

// Credentials go to the origin of the base URL, and to no other.
func TestCredentials(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		auth         Auth
		header, want string
	}{
		"bearer": {Auth{Bearer: "t"}, "Authorization", "Bearer t"},
		"basic":  {Auth{Basic: Basic{"anna", "p:w"}}, "Authorization", "Basic YW5uYTpwOnc="},
		"header": {Auth{Header: Header{"X-API-Key", "k"}}, "X-Api-Key", "k"},
		"none":   {Auth{}, "Authorization", ""},
	} {
		home, elsewhere := newAPI(t), newAPI(t)
		config := configOf(home)
		config.Auth, config.Headers = c.auth, map[string]string{"X-Client": "7"}
		w := workerOf(t, config)
		deliver(t, w, func(a *shaper.Attempt) { a.URL = "/x"; a.Headers = map[string][]string{"X-Client": {"mine"}} })
		if got := home.last(); got.header.Get(c.header) != c.want || got.header.Get("X-Client") != "7" {
			t.Errorf("%s: the API saw %v", name, got.header)
		}
		own := &shaper.OwnDelivery{URL: elsewhere.URL + "/shop", Headers: map[string]string{"Authorization": "theirs"}}
		if err := config.CheckFlow(own); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		deliver(t, w, func(a *shaper.Attempt) { a.URL, a.Own = "/x", own })
		got := elsewhere.last()
		if got.uri != "/shop/x" || got.header.Get("Authorization") != "theirs" || got.header.Get("X-Client") != "" || c.header != "Authorization" && got.header.Get(c.header) != "" {
			t.Errorf("%s: another origin saw %+v", name, got)
		}
		// Where the flow stays at the origin, it cannot replace the bucket's credentials.
		own = &shaper.OwnDelivery{URL: home.URL + "/v2", Headers: map[string]string{c.header: "theirs"}}
		if err := config.CheckFlow(own); (err != nil) != (c.want != "") {
			t.Errorf("%s: the flow's own credentials: %v", name, err)
		}
	}
}

// tokenServer gives tokens, and counts how many.
type tokenServer struct {
	*httptest.Server
	count atomic.Int64
	fail  atomic.Bool
	ends  int // seconds
}

func newTokenServer(t *testing.T, ends int) *tokenServer {
	t.Helper()
	s := &tokenServer{ends: ends}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.fail.Load() {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client","error_description":"hunter2 is wrong"}`)
			return
		}
		user, password, _ := r.BasicAuth()
		if user != "id" || password != "hunter2" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "read write" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":%d}`, s.count.Add(1), s.ends)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *tokenServer) auth() Auth {
	return Auth{OAuth2: OAuth2{TokenURL: s.URL, ClientID: "id", ClientSecret: "hunter2", Scopes: []string{"read", "write"}}}
}

// One token is for all requests, until it ends or the API does not take it.
func TestOAuth(t *testing.T) {
	t.Parallel()
	a, server := newAPI(t), newTokenServer(t, 3600)
	config := configOf(a)
	config.Auth = server.auth()
	w := workerOf(t, config)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultDone {
				t.Errorf("%+v", outcome)
			}
		})
	}
	group.Wait()
	if n := server.count.Load(); n != 1 || a.last().header.Get("Authorization") != "Bearer t1" {
		t.Errorf("%d tokens, the last one used is %q", n, a.last().header.Get("Authorization"))
	}
	a.answer = func(r *http.Request) int {
		if r.Header.Get("Authorization") == "Bearer t1" {
			return http.StatusUnauthorized
		}
		return http.StatusOK
	}
	if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultHeld || outcome.Reason != workers.ReasonCredentials {
		t.Errorf("with a token that was taken back: %+v", outcome)
	}
	if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultDone || server.count.Load() != 2 {
		t.Errorf("with the next token: %+v", outcome)
	}
	short := newTokenServer(t, 1)
	config.Auth = short.auth()
	w = workerOf(t, config)
	for range 2 {
		deliver(t, w, nil)
	}
	must.Equal(t, short.count.Load(), 2, "tokens of one second for two requests")
}

// Without a token nothing is sent, no secret is told, and the API is not to blame.
func TestNoToken(t *testing.T) {
	t.Parallel()
	a, server := newAPI(t), newTokenServer(t, 3600)
	server.fail.Store(true)
	config := configOf(a)
	config.Auth = server.auth()
	w := workerOf(t, config)
	outcome := deliver(t, w, nil)
	if outcome.Result != shaper.ResultHeld || outcome.Reason != workers.ReasonToken || outcome.Signal != shaper.SignalNone ||
		strings.Contains(outcome.Detail, "hunter2") || !strings.Contains(outcome.Detail, "401 invalid_client") {
		t.Errorf("%+v", outcome)
	}
	server.CloseClientConnections()
	server.Close()
	if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultHeld || outcome.Reason != workers.ReasonToken {
		t.Errorf("with a server that is away: %+v", outcome)
	}
	if got := a.last(); got.method != "" {
		t.Errorf("the API saw %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	attempt := shaper.NewAttempt(time.Now(), time.Minute, nil)
	if outcome := w.Deliver(ctx, attempt); outcome.Result != shaper.ResultReturned {
		t.Errorf("while the dispatcher stops: %+v", outcome)
	}
}

// What an API answers, and what becomes of the job.
func TestAnswers(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	w := workerOf(t, configOf(a))
	for status, want := range map[int]shaper.Result{
		200: shaper.ResultDone, 204: shaper.ResultDone, 302: shaper.ResultDead, 400: shaper.ResultDead, 401: shaper.ResultDead, 404: shaper.ResultDead,
		408: shaper.ResultRetry, 410: shaper.ResultDead, 429: shaper.ResultRetry, 500: shaper.ResultRetry, 503: shaper.ResultRetry,
	} {
		a.answer = func(*http.Request) int { return status }
		if outcome := deliver(t, w, nil); outcome.Result != want || outcome.Status != status {
			t.Errorf("%d: %+v", status, outcome)
		}
	}
}
