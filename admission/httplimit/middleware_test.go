package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/redisconn"
)

// asker answers as a test says, and remembers what it was asked.
type asker struct {
	decision admission.Decision
	err      error

	name string
	id   admission.Identity
	cost int64
}

func (a *asker) Ask(_ context.Context, name string, id admission.Identity, n int64) (admission.Decision, error) {
	a.name, a.id, a.cost = name, id, n
	return a.decision, a.err
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "hello after %d", len(httplimit.Decisions(r.Context())))
})

func TestMiddleware(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		asker   asker
		status  int
		code    string // of the problem
		retry   string
		policy  string // RateLimit-Policy
		logs    string
		violate bool
	}{
		"allowed":      {asker: asker{decision: dAllowed}, status: 200, policy: `"a";q=200;w=120`},
		"refused":      {asker: asker{decision: dRefused}, status: 429, code: "limit-exceeded", retry: "3", policy: `"b.c";q=10;w=1`, violate: true},
		"never":        {asker: asker{decision: dImpossible}, status: 422, code: "cost-impossible", policy: `"d";q=1;w=1`, violate: true},
		"in shadow":    {asker: asker{decision: dShadow}, status: 200},
		"open":         {asker: asker{decision: dOpen}, status: 200, policy: `"o";q=3;w=1`},
		"who":          {asker: asker{err: &admission.MissingIdentityError{Limit: "a", Per: "header:X-Tenant"}}, status: 400, code: "identity-missing"},
		"closed":       {asker: asker{err: fmt.Errorf("limit: %w", redisconn.ErrBreakerOpen)}, status: 503, code: "store-unavailable", retry: "1"},
		"no such":      {asker: asker{err: admission.ErrUnknownLimit}, status: 500, code: "internal", logs: "unknown limit"},
		"out of order": {asker: asker{err: errors.New("secret")}, status: 500, code: "internal", logs: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			handler := httplimit.Middleware(&test.asker, httplimit.Policy{
				Limit: "asked", Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})(hello)
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/a?b", nil)
			r.Header.Set("X-Tenant", "acme")
			handler.ServeHTTP(w, r)
			if w.Code != test.status || w.Header().Get("Retry-After") != test.retry || w.Header().Get("RateLimit-Policy") != test.policy {
				t.Errorf("%d %v: %s", w.Code, w.Header(), w.Body)
			}
			if test.asker.name != "asked" || test.asker.cost != 1 || test.asker.id.Caller != "addr:192.0.2.1" ||
				test.asker.id.IP != "192.0.2.1" || test.asker.id.Headers["X-Tenant"] != "acme" {
				t.Errorf("asked as %+v", test.asker)
			}
			if !strings.Contains(log.String(), test.logs) || test.logs == "" && log.Len() > 0 {
				t.Errorf("the log says %q", &log)
			}
			if test.code == "" {
				if w.Body.String() != "hello after 1" {
					t.Errorf("body %q", w.Body)
				}
				return
			}
			var body struct {
				Type, Code, Title, Instance string
				Status                      int
				Violated                    []string `json:"violated-policies"`
			}
			err := json.Unmarshal(w.Body.Bytes(), &body)
			if err != nil || w.Header().Get("Content-Type") != "application/problem+json" || body.Code != test.code || body.Title == "" ||
				body.Status != test.status || body.Instance != "/a" || (len(body.Violated) == 1) != test.violate || body.Type == "" ||
				test.status != 500 && strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%v: %s", err, w.Body)
			}
		})
	}
}

func TestMiddlewareChoices(t *testing.T) {
	t.Parallel()
	asked := &asker{decision: dAllowed}
	cost := int64(7)
	handler := httplimit.Middleware(asked, httplimit.Policy{
		Limit:    "asked",
		Identify: func(r *http.Request) admission.Identity { return admission.Identity{Flow: r.URL.Path} },
		Cost:     func(*http.Request) int64 { return cost },
	})(hello)
	ask := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/flow", nil))
		return w.Code
	}
	if status := ask(); status != 200 || asked.cost != 7 || asked.id.Flow != "/flow" || asked.id.IP != "" {
		t.Errorf("%d, asked %+v", status, asked)
	}
	for _, cost = range []int64{0, -1, admission.MaxCost + 1} {
		if status := ask(); status != 400 {
			t.Errorf("cost %d: %d", cost, status)
		}
	}
	for name, policy := range map[string]httplimit.Policy{
		"no limit":  {},
		"a network": {Limit: "asked", Proxies: httplimit.Proxies{Header: "Via"}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: taken", name)
				}
			}()
			httplimit.Middleware(asked, policy)
		}()
	}
}

func TestMiddlewareInMiddleware(t *testing.T) {
	t.Parallel()
	outer := httplimit.Middleware(&asker{decision: dAllowed}, httplimit.Policy{Limit: "a"})
	for _, inner := range []struct {
		decision admission.Decision
		status   int
		body     string
	}{{dRefused, 429, `"violated-policies":["b.c"]`}, {less(dAllowed, 3), 200, "hello after 2"}} {
		handler := outer(httplimit.Middleware(&asker{decision: inner.decision}, httplimit.Policy{Limit: "b"})(hello))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != inner.status || !strings.Contains(w.Body.String(), inner.body) {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
		h := http.Header{}
		httplimit.SetHeaders(h, []admission.Decision{dAllowed, inner.decision}, time.Now())
		if got, want := w.Header().Get("RateLimit"), h.Get("RateLimit"); got != want {
			t.Errorf("RateLimit %s, want %s", got, want)
		}
	}
}

// A limit before any handler: here two requests an hour for each client.
func ExampleMiddleware() {
	store, err := embedded.Start("127.0.0.1:0") // stands for a Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	redis, err := redisconn.Connect(store.URL(), redisconn.Options{Timeout: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer redis.Close()

	perClient := admission.Limit{Name: "per-client", Per: []string{admission.PerIP}}
	perClient.Limit, _ = admission.ParseRate("2/h")
	limiter, err := admission.NewLimiter(admission.LimiterConfig{Redis: redis, Limits: []admission.Limit{perClient}, Timeout: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	limited := httplimit.Middleware(limiter, httplimit.Policy{
		Limit:  "per-client",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	greet := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

	server := httptest.NewServer(limited(greet))
	defer server.Close()
	for range 3 {
		response, err := server.Client().Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		response.Body.Close()
		fmt.Printf("%d %s, Retry-After %q\n", response.StatusCode, response.Header.Get("RateLimit"), response.Header.Get("Retry-After"))
	}

	// Output:
	// 200 "per-client";r=1;t=1800;limit=2;remaining=1;reset=1800, Retry-After ""
	// 200 "per-client";r=0;t=3600;limit=2;remaining=0;reset=3600, Retry-After ""
	// 429 "per-client";r=0;t=1800;limit=2;remaining=0;reset=1800, Retry-After "1800"
}
