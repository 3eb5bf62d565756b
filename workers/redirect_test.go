package workers_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/llm"
	"github.com/tundish-io/tundish/workers/webhook"
)

// No worker follows a redirect, of a receiver, an API or a server of tokens: no secret, no signature and no job goes to a host that a response names.
func TestWorkersFollowNoRedirect(t *testing.T) {
	t.Parallel()
	var strayed, asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	t.Cleanup(elsewhere.Close)
	status := atomic.Int64{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Location", strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1))
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(api.Close)
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	hook := webhook.DefaultConfig()
	hook.URL, hook.Secrets, hook.AllowNetworks = api.URL, []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, local
	shop := httpworker.DefaultConfig()
	shop.BaseURL, shop.AllowNetworks, shop.Headers = api.URL, local, map[string]string{"X-Account": "a secret"}
	header, tokens, model := shop, shop, llm.DefaultConfig(llm.Anthropic)
	header.Auth.Header = httpworker.Header{Name: "X-Api-Key", Value: "a secret"}
	tokens.Auth.OAuth2 = httpworker.OAuth2{TokenURL: api.URL + "/token", ClientID: "tundish", ClientSecret: "a secret"}
	model.HTTP.BaseURL, model.HTTP.AllowNetworks, model.HTTP.Auth = api.URL, local, header.Auth
	type closing interface {
		shaper.Worker
		Close()
	}
	for name, start := range map[string]func() (closing, error){
		"webhook":         func() (closing, error) { return webhook.New(hook) },
		"http":            func() (closing, error) { return httpworker.New(header) },
		"http with OAuth": func() (closing, error) { return httpworker.New(tokens) },
		"llm":             func() (closing, error) { return llm.New(model, nil, nil) },
	} {
		for _, redirect := range []int{300, 301, 302, 303, 307, 308} {
			status.Store(int64(redirect))
			before := asked.Load()
			a := shaper.NewAttempt(time.Now(), time.Minute, nil)
			a.Bucket, a.ID, a.Method, a.Payload = "b", "job-1", http.MethodPost, []byte(`{"model":"m","max_tokens":1,"messages":[]}`)
			if name != "webhook" {
				a.URL = "/v1/messages"
			}
			w := must.Get(start())(t)
			outcome := w.Deliver(t.Context(), a)
			w.Close()
			if asked.Load() == before || outcome.Result == shaper.ResultDone {
				t.Errorf("%s, %d: asked %d times, %+v", name, redirect, asked.Load()-before, outcome)
			}
			if n := strayed.Swap(0); n > 0 {
				t.Errorf("%s follows a %d to another host", name, redirect)
			}
		}
	}
}
