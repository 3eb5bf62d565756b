package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/llm"
)

// routeRig is an API behind routes: "openai" has the buckets "quick", which takes the models gpt-*, and "rest", "claude" has "claude", "slow" sends one
// request an hour, and "gone" leads nowhere.
type routeRig struct {
	*server
	byRoute map[string][]httpapi.RouteBucket
	serve   atomic.Pointer[http.HandlerFunc]
	calls   atomic.Int64
}

func newRouteRig(t *testing.T, keys ...apikey.Key) *routeRig {
	t.Helper()
	return newRouteRigOf(t, func(string, *llm.Config) {}, keys...)
}

// newRouteRigOf is newRouteRig with settings of its workers, by the name of the bucket.
func newRouteRigOf(t *testing.T, change func(bucket string, c *llm.Config), keys ...apikey.Key) *routeRig {
	t.Helper()
	d := &routeRig{byRoute: map[string][]httpapi.RouteBucket{}}
	d.answerWith(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.calls.Add(1)
		(*d.serve.Load())(w, r)
	}))
	t.Cleanup(api.Close)
	store := redistest.Start(t)
	var buckets []shaper.Bucket
	workers := map[string]shaper.Worker{}
	for name, llmRoute := range map[string]string{"quick": "openai", "rest": "openai", "claude": "claude", "slow": "slow", "gone": "gone", "steady": "steady", "spare": "spare"} {
		b := shaper.DefaultBucket()
		b.Name, b.Rate, b.Adapt.Scope, b.Adapt.Floor, b.Breaker.Failures = name, rateOf(t, "1000/s"), shaper.ScopeBucket, 100, 0
		config := llm.DefaultConfig(llm.OpenAI)
		timeout := 30 * time.Second
		switch name {
		case "quick":
			config.Models = []string{"gpt-*"}
			b.RenamedFrom = "openai" // and the route keeps the name, so that no client has to change its base URL
		case "steady":
			b.Rate, b.RenamedFrom = rateOf(t, "2/s"), "calm"
		case "claude":
			config = llm.DefaultConfig(llm.Anthropic)
		case "slow":
			b.Rate = rateOf(t, "1/h")
			timeout = 3 * time.Second
		case "spare":
			b.Rate = rateOf(t, "1/10s")
		}
		config.HTTP.BaseURL, config.HTTP.Auth.Bearer, config.HTTP.Policy.Hold = api.URL, vendorKey, true
		if name == "gone" {
			config.HTTP.BaseURL = "http://127.0.0.1:1/"
		}
		config.HTTP.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		change(name, &config)
		w := must.Get(llm.New(config, nil, nil))(t)
		t.Cleanup(w.Close)
		buckets, workers[name] = append(buckets, b), w
		bucket := httpapi.RouteBucket{API: &llm.Transport{Worker: w, Bucket: name, Wait: timeout}, Priority: shaper.PriorityHigh}
		if name == "quick" { // the first one of its route
			d.byRoute[llmRoute] = append([]httpapi.RouteBucket{bucket}, d.byRoute[llmRoute]...)
		} else {
			d.byRoute[llmRoute] = append(d.byRoute[llmRoute], bucket)
		}
	}
	dispatch(t, store, buckets, workers)
	conn := connect(t, store.URL())
	client := must.Get(producer.New(producer.Config{Redis: conn, Buckets: buckets, Timeout: patience}))(t)
	leases := must.Get(dispatcher.NewLeases(dispatcher.LeasesConfig{Redis: conn, Timeout: patience}))(t)
	permits := dispatcher.NewPermits(client, leases)
	t.Cleanup(func() { permits.Close(); leases.Close(); client.Close() })
	for _, buckets := range d.byRoute {
		for i := range buckets {
			buckets[i].API.Permits = permits
		}
	}
	d.server = serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, Logger: logTo(t.Output()), Keys: keys, LLMRoutes: func(llmRoute string) []httpapi.RouteBucket { return d.byRoute[llmRoute] }}))
	return d
}

func (d *routeRig) answerWith(serve http.HandlerFunc) { d.serve.Store(&serve) }

// chatOf is a request for a model.
func chatOf(model string) string {
	return `{"model":"` + model + `","max_tokens":5,"messages":[{"role":"user","content":"Hello"}]}`
}

// A bucket was renamed: its first name leads to it, unless a route has that name.
func TestRoutesOfRenamedBuckets(t *testing.T) {
	t.Parallel()
	d := newRouteRig(t)
	for path, want := range map[string]string{"openai gpt-5": "quick", "openai o3": "rest", "steady o3": "steady", "calm o3": "steady"} {
		route, model, _ := strings.Cut(path, " ")
		a := d.do("POST", "/v1/proxy/"+route+"/v1/chat/completions", chatOf(model))
		must.Equal(t, fmt.Sprint(a.status, " ", a.header.Get("Tundish-Bucket")), "200 "+want, "%s", path)
	}
}

// What the API gets, and what the client gets of its answer.
func TestRoutePassesOn(t *testing.T) {
	t.Parallel()
	d := newRouteRig(t)
	d.answerWith(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", strings.Join([]string{r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Accept-Encoding"), r.Header.Get("X-Custom"), r.Header.Get("Tundish-Key")}, "|"))
		w.Header().Set("X-Request-Id", "theirs")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	a := d.do("POST", "/v1/proxy/openai/v1/chat/completions?a=b", chatOf("gpt-5"), "Content-Type", "application/json", "Authorization", "Bearer theirs", "Accept-Encoding", "br", "X-Custom", "7")
	if a.status != http.StatusCreated || a.text != chatOf("gpt-5") || a.header.Get("Tundish-Job") == "" || a.header.Get("X-Request-Id") == "theirs" {
		t.Errorf("%d %s, %v", a.status, a.text, a.header)
	}
	if wait, err := strconv.ParseFloat(a.header.Get("Tundish-Wait"), 64); err != nil || wait < 0 || a.header.Get("Tundish-Bucket") == "" {
		t.Errorf("the way of the request: %v", a.header)
	}
	must.Equal(t, a.header.Get("X-Seen"), "POST|/v1/chat/completions?a=b|Bearer "+vendorKey+"||7|", "the API has seen")
	if a := d.do("GET", "/v1/proxy/claude/v1/models", ""); a.status != http.StatusCreated {
		t.Errorf("without a model: %d %s", a.status, a.text)
	}
}

// Faults of this server have the form of the provider's. Clients are told not to try again once the API was called.
func TestRouteFaults(t *testing.T) {
	t.Parallel()
	d := newRouteRig(t)
	for name, c := range map[string]struct {
		llmRoute, path, model string
		headers               []string
		status                int
		code, retry           string
	}{
		"a long wait":      {"slow", "/v1/x", "m", nil, 429, "wait-too-long", ""},
		"a short patience": {"slow", "/v1/x", "m", []string{"X-Stainless-Timeout", "1"}, 429, "wait-too-long", ""},
		"no answer":        {"gone", "/v1/x", "m", nil, 502, "no-answer", "false"},
		"a path":           {"claude", "/../x", "m", nil, 400, "invalid", ""},
		"an upgrade":       {"openai", "/v1/x", "gpt-5", []string{"Upgrade", "websocket", "Connection", "Upgrade"}, 400, "invalid", ""},
	} {
		a := d.do("POST", "/v1/proxy/"+c.llmRoute+c.path, chatOf(c.model), c.headers...)
		var fault struct {
			Type  string
			Error struct{ Message, Type, Code string }
		}
		if err := json.Unmarshal([]byte(a.text), &fault); err != nil || a.status != c.status || fault.Error.Code != c.code || fault.Error.Type != "tundish" || fault.Error.Message == "" ||
			(fault.Type == "error") != (c.llmRoute == "claude") || a.header.Get("X-Should-Retry") != c.retry || (a.status == 429) != (a.header.Get("Retry-After") != "") {
			t.Errorf("%s: %d %s, %v, %v", name, a.status, a.text, a.header, err)
		}
	}
	d.byRoute["openai"] = d.byRoute["openai"][:1]
	if a := d.do("POST", "/v1/proxy/openai/v1/x", chatOf("other")); a.status != 404 || !strings.Contains(a.text, `"unknown-model"`) {
		t.Errorf("another model: %d %s", a.status, a.text)
	}
}

// An API that asks for less is asked again, as long as the client waits; then its answer passes on.
func TestRouteWaitsForTheAPI(t *testing.T) {
	t.Parallel()
	d := newRouteRig(t)
	d.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		if d.calls.Load() < 3 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = io.WriteString(w, "answer")
	})
	if a := d.do("POST", "/v1/proxy/openai/v1/x", chatOf("gpt-5")); a.status != http.StatusOK || a.text != "answer" || d.calls.Load() != 3 {
		t.Errorf("after %d calls: %d %s", d.calls.Load(), a.status, a.text)
	}
	d.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(529)
		_, _ = io.WriteString(w, "overloaded")
	})
	if a := d.do("POST", "/v1/proxy/claude/v1/x", chatOf("m"), "X-Stainless-Timeout", "2.5"); a.status != 529 || a.text != "overloaded" || a.header.Get("X-Should-Retry") != "" {
		t.Errorf("%d %s, %v", a.status, a.text, a.header)
	}
}

// A request that would wait for too long goes to the fallback, if that takes its model and the key may use it.
func TestRouteFallsBack(t *testing.T) {
	t.Parallel()
	d := newRouteRig(t, keyOf("all", []string{"*"}, apikey.RoleEnqueue), keyOf("one", []string{"slow"}, apikey.RoleEnqueue))
	slow := &d.byRoute["slow"][0]
	slow.Fallback, slow.FallbackAfter = &d.byRoute["openai"][0], time.Second // quick, which takes gpt-*
	for _, c := range []struct {
		key, model string
		status     int
	}{{"all", "gpt-5", 200}, {"all", "other", 429}, {"one", "gpt-5", 429}} {
		began := time.Now()
		a := d.do("POST", "/v1/proxy/slow/v1/x", chatOf(c.model), "Authorization", "Bearer "+c.key)
		if a.status != c.status || c.status == 200 && a.text != "ok" || time.Since(began) > patience {
			t.Errorf("%s, %s: %d %s", c.key, c.model, a.status, a.text)
		}
	}
}

// A fallback answers only what it sends sooner than the bucket: one that has a longer queue takes nothing.
func TestRouteWaitsWhereItIsShorter(t *testing.T) {
	t.Parallel()
	d := newRouteRig(t)
	steady := &d.byRoute["steady"][0]
	steady.Fallback, steady.FallbackAfter = &d.byRoute["spare"][0], time.Millisecond
	answers := make(chan string)
	const calls = 4
	for range calls {
		go func() {
			a := d.do("POST", "/v1/proxy/steady/v1/x", chatOf("gpt-5"))
			answers <- fmt.Sprint(a.status, " ", a.header.Get("Tundish-Bucket"))
		}()
	}
	got := map[string]int{}
	for range calls {
		got[<-answers]++
	}
	must.Equal(t, got["200 steady"], calls, "%v, want all of steady: the first slot of spare comes 10 s later", got)
}

// A model that the bucket maps has another name at the fallback, in the body or in the path, and the answer says who made it. A model that it does not
// map keeps its name.
func TestRouteFallsBackToAnotherModel(t *testing.T) {
	t.Parallel()
	d := newRouteRig(t)
	slow := &d.byRoute["slow"][0]
	slow.Fallback, slow.FallbackAfter = &d.byRoute["openai"][0], time.Second // quick, which takes gpt-*
	slow.FallbackModels = map[string]string{"o3": "gpt-5%", "gpt-4": "gpt-5%", "gpt-x": "o3"}
	d.answerWith(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.RequestURI+" "+string(body))
	})
	const twice = `{"model":"o3","model":"o3"}`
	for name, c := range map[string]struct{ path, body, want, model string }{
		"the body":    {"/v1/x", `{ "a":1, "model" : "o3","b":"o3"}`, `/v1/x { "a":1, "model" : "gpt-5%","b":"o3"}`, "gpt-5%"},
		"the path":    {"/openai/deployments/gpt-4/chat/completions?api-version=1", chatOf(""), "/openai/deployments/gpt-5%25/chat/completions?api-version=1 " + chatOf(""), "gpt-5%"},
		"a method":    {"/v1/models/o3:generateContent", "{}", "/v1/models/gpt-5%25:generateContent {}", "gpt-5%"},
		"not mapped":  {"/v1/x", chatOf("gpt-3"), "/v1/x " + chatOf("gpt-3"), ""},
		"not taken":   {"/v1/x", chatOf("gpt-x"), "", ""},
		"named twice": {"/v1/x", twice, "", ""},
	} {
		a := d.do("POST", "/v1/proxy/slow"+c.path, c.body)
		switch {
		case c.want == "":
			if a.status != 429 || a.header.Get("Tundish-Model") != "" {
				t.Errorf("%s: %d %s, %v", name, a.status, a.text, a.header)
			}
		case a.status != 200 || a.text != c.want || a.header.Get("Tundish-Bucket") != "quick" || strings.Join(a.header.Values("Tundish-Model"), ",") != c.model:
			t.Errorf("%s: %d %q, bucket %q, model %q: want %q of quick, model %q", name, a.status, a.text, a.header.Get("Tundish-Bucket"), a.header.Get("Tundish-Model"), c.want, c.model)
		}
	}
}

// The model picks the bucket of a route, among those that the key may use.
func TestRouteKeys(t *testing.T) {
	t.Parallel()
	d := newRouteRig(t, keyOf("one", []string{"rest"}, apikey.RoleEnqueue), keyOf("all", []string{"*"}, apikey.RoleEnqueue), keyOf("none", []string{"claude"}, apikey.RoleEnqueue))
	for _, c := range []struct {
		key, model string
		status     int
	}{
		{"all", "gpt-5", 200}, {"one", "gpt-5", 200}, {"one", "other", 200}, {"none", "gpt-5", 403}, {"nobody", "gpt-5", 401},
	} {
		a := d.do("POST", "/v1/proxy/openai/v1/x", chatOf(c.model), "Authorization", "Bearer "+c.key)
		if a.status != c.status || c.status != 200 && !strings.HasPrefix(a.text, `{"error":{"message":"`) {
			t.Errorf("%s, %s: %d %s", c.key, c.model, a.status, a.text)
		}
	}
}
