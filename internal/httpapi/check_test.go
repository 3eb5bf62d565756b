package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
)

// asked is a question that a limiter got.
type asked struct {
	Name, Tier string
	Key        string // "-" where there is none
	IP         string
	Cost       int64
}

// fakeLimits has the limit "a" and answers as a test says.
type fakeLimits struct {
	decision *admission.Decision // nil: allowed
	err      error

	mu  sync.Mutex
	got asked
}

func (f *fakeLimits) note(question asked) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = question
}

func (f *fakeLimits) answer(name string) (admission.Decision, error) {
	switch {
	case f.err != nil:
		return admission.Decision{}, f.err
	case name != "a":
		return admission.Decision{}, fmt.Errorf("%w %q", admission.ErrUnknownLimit, name)
	case f.decision != nil:
		return *f.decision, nil
	}
	return admission.Decision{Limit: "a", Allowed: true, Quota: 10, Window: time.Minute, Remaining: 9, ResetAfter: 6 * time.Second}, nil
}

func (f *fakeLimits) Ask(_ context.Context, name string, id admission.Identity, n int64) (admission.Decision, error) {
	f.note(asked{name, id.Tier, "-", id.IP, n})
	return f.answer(name)
}

func (f *fakeLimits) AskKey(_ context.Context, name, tier, key string, n int64) (admission.Decision, error) {
	f.note(asked{Name: name, Tier: tier, Key: key, Cost: n})
	return f.answer(name)
}

func (f *fakeLimits) Limits(context.Context) ([]admission.LimitInfo, error) {
	if f.err != nil {
		return nil, f.err
	}
	limit := admission.Limit{Name: "a"}.WithDefaults()
	return []admission.LimitInfo{{Configured: limit, InForce: limit}}, nil
}

func (f *fakeLimits) Override(_ context.Context, name string, _ admission.Patch) (admission.Limit, error) {
	_, err := f.answer(name)
	return admission.Limit{Name: name}.WithDefaults(), err
}

func (f *fakeLimits) ResetOverride(_ context.Context, name string) (admission.Limit, error) {
	_, err := f.answer(name)
	return admission.Limit{Name: name}.WithDefaults(), err
}

func TestCheckAsks(t *testing.T) {
	t.Parallel()
	const here = "127.0.0.1"
	for name, test := range map[string]struct {
		method, path string // path after /v1/limits/a/check
		body         string
		headers      []string
		want         asked
	}{
		"by identity":           {"GET", "", "", nil, asked{"a", "", "-", here, 1}},
		"by forwarded":          {"GET", "", "", []string{"X-Forwarded-For", "192.0.2.7"}, asked{"a", "", "-", "192.0.2.7", 1}},
		"query":                 {"GET", "?key=k&cost=3&tier=pro", "", nil, asked{"a", "pro", "k", "", 3}},
		"headers over query":    {"GET", "?key=k&cost=3&tier=pro", "", []string{"X-Tundish-Key", "h", "X-Tundish-Cost", "4"}, asked{"a", "pro", "h", "", 4}},
		"body over all":         {"POST", "?key=k&cost=3", `{"key":"b","cost":5}`, []string{"X-Tundish-Key", "h", "X-Tundish-Tier", "t"}, asked{"a", "t", "b", "", 5}},
		"body with nothing":     {"POST", "?key=k", `{"key":null,"cost":null}`, nil, asked{"a", "", "k", "", 1}},
		"a tier alone":          {"GET", "?tier=pro", "", nil, asked{"a", "pro", "-", here, 1}},
		"an empty header":       {"GET", "?key=k", "", []string{"X-Tundish-Key", "", "X-Tundish-Cost", ""}, asked{"a", "", "k", "", 1}},
		"an empty key":          {"GET", "?key=", "", nil, asked{"a", "", "", "", 1}},
		"an empty key in JSON":  {"POST", "", `{"key":""}`, nil, asked{"a", "", "", "", 1}},
		"a key of any bytes":    {"GET", "?key=%00%ff%0a", "", nil, asked{"a", "", "\x00\xff\n", "", 1}},
		"the dearest":           {"GET", "?cost=1000000", "", nil, asked{"a", "", "-", here, 1_000_000}},
		"PUT":                   {"PUT", "?key=k", "", nil, asked{"a", "", "k", "", 1}},
		"PROPFIND":              {"PROPFIND", "?key=k", "", nil, asked{"a", "", "k", "", 1}},
		"OPTIONS":               {"OPTIONS", "?key=k", "", nil, asked{"a", "", "k", "", 1}},
		"gateway":               {"GET", "/", "", nil, asked{"a", "", "-", here, 1}},
		"gateway, query":        {"GET", "/orders?key=k&cost=1000&deny=x", "", nil, asked{"a", "", "-", here, 1}},
		"gateway, body":         {"POST", "/orders", `{"key":"b","cost":0}`, nil, asked{"a", "", "-", here, 1}},
		"gateway, headers":      {"POST", "/orders?key=k", "", []string{"X-Tundish-Key", "h", "X-Tundish-Cost", "4"}, asked{"a", "", "h", "", 4}},
		"gateway, double slash": {"GET", "//orders//1", "", nil, asked{"a", "", "-", here, 1}},
		"gateway, dots":         {"GET", "/../../../buckets/./..", "", nil, asked{"a", "", "-", here, 1}},
		"gateway, escaped":      {"DELETE", "/a%2Fb%00%2e%2e/%F0?%zz;", "", nil, asked{"a", "", "-", here, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := &fakeLimits{}
			api := httpapi.NewProducer(httpapi.ProducerConfig{
				Jobs: store(t), Limits: limits, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
			})
			w := request(api, here+":9", test.method, "http://localhost/v1/limits/a/check"+test.path, test.body, test.headers...)
			if w.Code != 200 || w.Header().Get("RateLimit") != `"a";r=9;t=6;limit=10;remaining=9;reset=6` {
				t.Fatalf("%d %v: %s", w.Code, w.Header(), w.Body)
			}
			must.Equal(t, cmp.Diff(test.want, limits.got), "", "(-want +got):")
		})
	}
}

func TestCheckIsNotAsked(t *testing.T) {
	t.Parallel()
	limits := &fakeLimits{}
	api := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), Limits: limits})
	for name, test := range map[string]struct {
		path, body string
		headers    []string
		status     int
		field      string // or a part of the text
	}{
		"cost 0":              {path: "?cost=0", status: 400, field: "cost"},
		"cost below 0":        {path: "?cost=-1", status: 400, field: "cost"},
		"cost absurd":         {path: "?cost=1000001", status: 400, field: "cost"},
		"cost beyond int64":   {path: "?cost=99999999999999999999", status: 400, field: "cost"},
		"cost of a fraction":  {path: "?cost=1.5", status: 400, field: "cost"},
		"cost in words":       {path: "?cost=one", status: 400, field: "cost"},
		"cost empty":          {path: "?cost=", status: 400, field: "cost"},
		"cost in a header":    {headers: []string{"X-Tundish-Cost", "0"}, status: 400, field: "X-Tundish-Cost"},
		"cost in the body":    {body: `{"cost":0}`, status: 400, field: "cost"},
		"cost as text":        {body: `{"cost":"1"}`, status: 400, field: "cost"},
		"key of a number":     {body: `{"key":1}`, status: 400, field: "key"},
		"key twice":           {path: "?key=a&key=b", status: 400, field: "key"},
		"key twice in JSON":   {body: `{"key":"a","key":"b"}`, status: 400, field: "key"},
		"key in two headers":  {headers: []string{"X-Tundish-Key", "a", "X-Tundish-Key", "b"}, status: 400, field: "X-Tundish-Key"},
		"to a gateway":        {path: "/x", headers: []string{"X-Tundish-Key", "a", "X-Tundish-Key", "b"}, status: 400, field: "X-Tundish-Key"},
		"odd tier":            {path: "?tier=P+R+O", status: 400, field: "tier"},
		"odd deny":            {path: "?deny=200", status: 400, field: "deny"},
		"odd deny, a gateway": {path: "/x", headers: []string{"X-Tundish-Deny", "500"}, status: 400, field: "X-Tundish-Deny"},
		"another field":       {body: `{"limit":"b"}`, status: 400, field: "limit"},
		"a list":              {body: `[]`, status: 400, field: "object"},
		"no JSON":             {body: `{`, status: 400, field: "body"},
		"too large":           {body: `{"key":"` + strings.Repeat("x", 70_000) + `"}`, status: 413, field: "too-large"},
		"a form":              {body: `key=a`, headers: []string{"Content-Type", "text/plain"}, status: 415, field: "text/plain"},
		"all at once":         {path: "?cost=0&tier=P&deny=1", status: 400, field: "3 fields"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := request(api, "127.0.0.1:9", "POST", "http://localhost/v1/limits/a/check"+test.path, test.body, test.headers...)
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.field) {
				t.Errorf("%d: %s", w.Code, w.Body)
			}
		})
	}
	t.Cleanup(func() {
		must.Equal(t, limits.got, (asked{}), "asked")
	})
}

func TestCheckAnswers(t *testing.T) {
	t.Parallel()
	refused := &admission.Decision{Limit: "a", Quota: 10, Window: time.Minute, RetryAfter: 1500 * time.Millisecond, ResetAfter: time.Minute}
	never := &admission.Decision{Limit: "a", Impossible: true, Quota: 10, Window: time.Minute, Remaining: 10}
	shadow := &admission.Decision{Limit: "a", Allowed: true, Shadow: true, WouldRefuse: true, Quota: 10, Window: time.Minute, RetryAfter: time.Second}
	open := &admission.Decision{Limit: "a", Allowed: true, Source: admission.Undecided, Quota: 10, Window: time.Minute}
	away := fmt.Errorf("limit: %w", redisconn.ErrBreakerOpen)
	for name, test := range map[string]struct {
		limit    string // "" is a
		decision *admission.Decision
		err      error
		query    string
		status   int
		code     string
		retry    string
		limited  bool // has RateLimit
		has      string
	}{
		"refused":             {decision: refused, status: 429, code: "limit-exceeded", retry: "2", limited: true, has: `"violated-policies":["a"]`},
		"refused as 403":      {decision: refused, query: "?deny=403", status: 403, code: "limit-exceeded", retry: "2", limited: true},
		"refused as 429":      {decision: refused, query: "?deny=429", status: 429, code: "limit-exceeded", retry: "2", limited: true},
		"impossible":          {decision: never, status: 422, code: "cost-impossible", limited: true},
		"impossible as 403":   {decision: never, query: "?deny=403", status: 403, code: "cost-impossible", limited: true},
		"in shadow":           {decision: shadow, status: 200, has: `"would_refuse":true`},
		"open":                {decision: open, status: 200, has: `"source":"open"`},
		"unknown":             {limit: "b", status: 404, code: "unknown-limit"},
		"who":                 {err: &admission.MissingIdentityError{Limit: "a", Per: "flow"}, status: 400, code: "identity-missing"},
		"closed":              {err: away, status: 503, code: "store-unavailable", retry: "1"},
		"closed, not refused": {err: away, query: "?deny=403", status: 503, code: "store-unavailable", retry: "1"},
		"out of order":        {err: errors.New("canary"), status: 500, code: "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), Limits: &fakeLimits{decision: test.decision, err: test.err}}))
			if test.limit == "" {
				test.limit = "a"
			}
			path := "/v1/limits/" + test.limit + "/check"
			a := api.do("GET", path+test.query, "").want(test.status, test.code)
			a.wantHeader("Retry-After", test.retry)
			if (a.header.Get("RateLimit") != "") != test.limited || !strings.Contains(a.text, test.has) || strings.Contains(a.text, "canary") {
				t.Errorf("%v: %s", a.header, a.text)
			}
			head := api.do("HEAD", path+test.query, "").want(test.status, "")
			if head.text != "" || head.header.Get("RateLimit") != a.header.Get("RateLimit") || head.header.Get("Retry-After") != test.retry {
				t.Errorf("HEAD: %v %q", head.header, head.text)
			}
			deny := strings.TrimPrefix(test.query, "?deny=")
			gateway := api.do("PATCH", path+"/x?deny=429&cost=9", "", "X-Tundish-Deny", deny).want(test.status, test.code)
			gateway.wantHeader("Retry-After", test.retry)
		})
	}
	none := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t)}))
	none.do("GET", "/v1/limits/a/check", "").want(404, "unknown-limit")
	none.do("GET", "/v1/limits/a/check/", "").want(404, "unknown-limit")
	none.do("GET", "/v1/limits/A/check/", "").want(404, "unknown-limit")
	none.do("GET", "/v1/limits/a/checkmate", "").want(404, "unknown-route")
}

// TestCheckAndChange is the whole of limits on a real Redis.
func TestCheckAndChange(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	client := connect(t, store.URL())
	limits := buckets(t)[1].Limits
	limits[0].Tiers = map[string]admission.Rate{"pro": rateOf(t, "40/h")}
	limiter := must.Get(admission.NewLimiter(admission.LimiterConfig{Redis: client, Limits: limits, Revision: 1, Timeout: 10 * time.Second, Logger: logTo(t.Output())}))(t)
	jobsClient := newClient(t, client, nil)
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: jobsClient, CheckJob: checkJob, Limits: limiter, BucketLimits: jobsClient, Logger: logTo(t.Output()),
	}))
	const check = "/v1/limits/per-caller/check?key=k"
	api.do("GET", check+"&cost=3", "").want(200, "").has("remaining", float64(0))
	a := api.do("GET", check, "").want(429, "limit-exceeded")
	retry, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || retry > 900 || retry < 600 { // less on a slow machine
		t.Errorf("Retry-After: %q", a.header.Get("Retry-After"))
	}
	a.has("detail", fmt.Sprintf(`limit "per-caller" exceeded (4/h): retry in %s`, time.Duration(retry)*time.Second))
	api.do("GET", check+"&cost=4", "").want(422, "cost-impossible").
		has("detail", `cost 4 is above limit "per-caller" (at most 3 at once): lower the cost or raise the limit`)
	api.do("GET", check+"&tier=pro&cost=30", "").want(200, "").has("remaining", float64(0))
	api.do("POST", "/v1/limits/per-caller/check", "").want(200, "").has("remaining", float64(2)) // by address

	api.do("PATCH", "/v1/limits/per-caller", `{"limit":"8/h"}`).want(200, "")
	a = api.do("GET", "/v1/limits/per-caller", "").want(200, "")
	want := map[string]any{"limit": "8/h"}
	if diff := cmp.Diff(want, a.json["override"]); diff != "" || a.json["configured"].(map[string]any)["limit"] != "4/h" ||
		a.json["in_force"].(map[string]any)["limit"] != "8/h" || a.json["in_force"].(map[string]any)["burst"] != float64(6) {
		t.Errorf("after PATCH: %s", a.text)
	}
	limited := "/v1/buckets/limited/jobs"
	api.do("POST", limited, job(`"cost":6`)).want(202, "").wantHeader("RateLimit-Policy", `"per-caller";q=6;w=2700, "everybody";q=100;w=60`)
	api.do("DELETE", "/v1/limits/per-caller/override", "").want(200, "").has("name", "per-caller")
	api.do("POST", limited, job(`"cost":6`)).want(422, "cost-impossible")
	a = api.do("GET", "/v1/limits", "").want(200, "")
	if list := a.json["limits"].([]any); len(list) != 2 || list[0].(map[string]any)["override"] != nil {
		t.Errorf("after DELETE: %s", a.text)
	}
}

// An API key that makes up callers has all keys of a limit, and those of another API key are counted apart all the same.
func TestGatewaysShareTheKeysOfALimit(t *testing.T) {
	t.Parallel()
	limit := buckets(t)[1].Limits[0]
	limit.MaxKeys = 10
	limiter := must.Get(admission.NewLimiter(admission.LimiterConfig{Redis: redistest.Start(t).Client(), Limits: []admission.Limit{limit}, Timeout: 10 * time.Second}))(t)
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), Limits: limiter, Keys: []apikey.Key{
		keyOf("loud", nil, apikey.RoleCheck), keyOf("calm", nil, apikey.RoleCheck),
	}}))
	own := func(gateway string, keys int) (n int) {
		for i := range keys {
			if a := api.as(gateway, "GET", fmt.Sprintf("/v1/limits/per-caller/check?key=%s-%d", gateway, i), "").want(200, ""); a.json["overflow"] == nil {
				n++
			}
		}
		return n
	}
	if loud, calm := own("loud", 12), own("calm", 3); loud != 10 || calm != 3 {
		t.Errorf("%d and %d callers are counted apart", loud, calm)
	}
}

// FuzzCheckForGateway holds that nothing that a gateway's client writes into
// path and query leads elsewhere or chooses the key.
func FuzzCheckForGateway(f *testing.F) {
	for _, seed := range []string{"", "/", "../../check", "x?key=k", "%2e%2e/", "..%2f..", "?deny=403", "//", "\x00", "a;b", "check/check", "#f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		target, err := url.ParseRequestURI("/v1/limits/a/check/" + rest)
		if err != nil {
			t.Skip() // the server itself refuses it
		}
		limits := &fakeLimits{}
		api := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: &fake{}, Limits: limits})
		r := httptest.NewRequest("POST", "http://localhost/", nil)
		r.URL, r.RequestURI, r.RemoteAddr = target, target.RequestURI(), "127.0.0.1:9"
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code != 200 || limits.got != (asked{"a", "", "-", "127.0.0.1", 1}) {
			t.Errorf("%q: %d, asked %+v: %s", rest, w.Code, limits.got, w.Body)
		}
	})
}
