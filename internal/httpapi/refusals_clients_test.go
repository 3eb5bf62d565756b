package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
)

// refusingRig is a proxy whose bucket "slow" has its slots taken for two hours, "pooled" is full, "stuck" sends nothing, "gone" is on a host that cannot
// connect, and "api" takes one call a second.
func refusingRig(t *testing.T) *proxyRig {
	t.Helper()
	p := newProxyRigOf(t, func(b *shaper.Bucket, c *httpworker.Config) {
		switch b.Name {
		case "api":
			b.Limits = []admission.Limit{{Name: "calls", Limit: rateOf(t, "1/s"), Burst: 1}}
		case "pooled":
			b.Capacity, b.Pool, b.Adapt.Scope, b.Rate = 1, nil, shaper.ScopeBucket, rateOf(t, "1/h")
		case "gone":
			c.BaseURL, c.EgressProxy = "https://api.example.com/", "http://127.0.0.1:1"
		}
	}, keyOf("ours", []string{"*"}, apikey.RoleEnqueue))
	first := shaper.Job{Bucket: "slow", Method: "GET", URL: "/x", Priority: shaper.PriorityCritical, First: true}
	receipts, err := p.client.Enqueue(t.Context(), first, first, first, shaper.Job{Bucket: "pooled", Method: "GET", URL: "/x"})
	if err != nil || slices.ContainsFunc(receipts, func(r shaper.Receipt) bool { return r.Refusal != nil }) {
		t.Fatal(receipts, err)
	}
	return p
}

// What this server refuses is an error for each of them, with its status and its cause, never a success.
func TestOfficialClientsKnowOurRefusals(t *testing.T) {
	t.Parallel()
	p := refusingRig(t)
	llm := newRouteRig(t)
	for _, tt := range []struct {
		name, at, key string
		status        float64
		message       string
	}{
		{"unknown bucket", p.http.URL + "/v1/proxy/none", "ours", 404, "bucket"},
		{"unknown key", p.http.URL + "/v1/proxy/api", "other", 401, "key"},
		{"refused", p.http.URL + "/v1/proxy/api/a%2F..%2F", "ours", 400, "climb"},
		{"wait-too-long", p.http.URL + "/v1/proxy/slow", "ours", 429, "wait"},
		{"bucket-full", p.http.URL + "/v1/proxy/pooled", "ours", 429, "full"},
		{"not-in-time", p.http.URL + "/v1/proxy/stuck", "ours", 504, "waited for too long"},
		{"local-fault", p.http.URL + "/v1/proxy/gone", "ours", 503, "cannot connect"},
		{"an LLM route", llm.http.URL + "/v1/proxy/slow", "ours", 429, "wait"},
		{"no answer of an LLM", llm.http.URL + "/v1/proxy/gone", "ours", 502, "did not answer"},
	} {
		p.hostFault.Store(tt.name == "local-fault")
		wantRefusals(t, tt.name, runClients(t, "REFUSED="+tt.at, "KEY="+tt.key), tt.status, tt.message)
	}
	p.store.Kill()
	wantRefusals(t, "store-unavailable", runClients(t, "REFUSED="+p.http.URL+"/v1/proxy/api", "KEY=ours"), 503, "Redis")
}

func wantRefusals(t *testing.T, name string, all map[string][]did, status float64, message string) {
	t.Helper()
	for client, calls := range all {
		got, _ := calls[0].Got.(map[string]any)
		said, _ := got["message"].(string)
		isPlain := client == "slack" && status == 429 // it shows how long it is to wait, and no body
		isOfLLM := strings.Contains(name, "LLM") && client != "openai" && client != "anthropic"
		if got["threw"] == nil || !isPlain && client != "slack" && got["status"] != status || !isPlain && !isOfLLM && !strings.Contains(said, message) {
			t.Errorf("%s: %s got %v", name, client, calls[0].Got)
		}
	}
}

// clientCall is a call of an official client as this server got it.
type clientCall struct {
	at     time.Time
	status int
	after  time.Duration // that its Retry-After says
}

// callsOf logs the calls of official clients by their names.
type callsOf struct {
	mu   sync.Mutex
	logs map[string][]clientCall
}

func (c *callsOf) log(next http.Handler) http.Handler {
	names := map[string]string{"stripe": "stripe", "octokit": "github", "openai": "openai", "anthropic": "anthropic", "slack": "slack", "elastic": "elastic"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := clientCall{at: time.Now()}
		told := httptest.NewRecorder()
		next.ServeHTTP(told, r)
		seconds, _ := strconv.Atoi(told.Header().Get("Retry-After"))
		call.status, call.after = told.Code, time.Duration(seconds)*time.Second
		for word, name := range names {
			if strings.Contains(strings.ToLower(r.UserAgent()), word) {
				c.mu.Lock()
				c.logs[name] = append(c.logs[name], call)
				c.mu.Unlock()
			}
		}
		for name, values := range told.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(told.Code)
		_, _ = w.Write(told.Body.Bytes())
	})
}

// The clients that try again after a 429 wait as long as it says; those that try again after a 503 make the tries that they were given, and no more.
func TestOfficialClientsRetryAsTheyAreTold(t *testing.T) {
	t.Parallel()
	const retries, pages = 2, 3
	p := refusingRig(t)
	p.hostFault.Store(true)
	run := func(path string) map[string][]clientCall {
		t.Helper()
		calls := &callsOf{logs: map[string][]clientCall{}}
		server := httptest.NewServer(calls.log(p.handler))
		defer server.Close()
		runClients(t, "REFUSED="+server.URL+path, "KEY=ours", "RETRIES="+strconv.Itoa(retries))
		must.Be(t, len(calls.logs), 6, "calls of clients")
		for client, list := range calls.logs {
			t.Logf("%s: %s: %v", path, client, list)
			if len(list) > pages*(1+retries) {
				t.Errorf("%s made %d calls of %s", client, len(list), path)
			}
		}
		return calls.logs
	}
	obeys := func(client string, status int, list []clientCall) {
		t.Helper()
		for i, call := range list[:len(list)-1] {
			if gap := list[i+1].at.Sub(call.at); call.status == status && gap < call.after-5*time.Millisecond {
				t.Errorf("%s called again after %s, and was told %s", client, gap, call.after)
			}
		}
	}
	limited := run("/v1/proxy/api")
	for _, client := range []string{"openai", "anthropic", "slack"} {
		obeys(client, http.StatusTooManyRequests, limited[client])
	}
	for client, list := range run("/v1/proxy/gone") {
		if len(list) > 1+retries {
			t.Errorf("%s made %d calls", client, len(list))
		}
		if client == "openai" || client == "anthropic" {
			obeys(client, http.StatusServiceUnavailable, list)
		}
	}
}
