package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/llm"
)

// refusing is an API that takes one token, and the source of the tokens of the bucket before it: a file, or an OAuth server.
type refusing struct {
	mu        sync.Mutex
	valid     string
	swap      func() // at the next call, before it is judged; nil: none
	got       []string
	refetched int
}

// ServeHTTP is the API.
func (a *refusing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.swap != nil {
		a.swap()
		a.swap = nil
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	a.got = append(a.got, token)
	if token != a.valid {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "bad token")
		return
	}
	_, _ = io.WriteString(w, "good")
}

// calls takes the tokens of the calls since the last time.
func (a *refusing) calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.got
	a.got = nil
	return calls
}

// A client whose request has a token that was replaced meanwhile gets the response to the new one, and the API sees two calls. Where the new token is
// refused too, each client gets the 401, at once, and the API one call of each. Tokens are not fetched more often for that.
func TestProxyClientsAndReplacedTokens(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"file", "oauth"} {
		for _, route := range []string{"http", "llm"} {
			t.Run(source+" of "+route, func(t *testing.T) {
				t.Parallel()
				api := &refusing{valid: "t1"}
				file := filepath.Join(t.TempDir(), "token")
				put := func(token string) {
					if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
						t.Error(err)
					}
				}
				put("t1")
				tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					text, _ := os.ReadFile(file)
					api.mu.Lock()
					defer api.mu.Unlock()
					api.refetched++
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, text)
				}))
				t.Cleanup(tokens.Close)
				set := func(c *httpworker.Config) {
					c.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
					if c.Auth = (httpworker.Auth{Bearer: "t1"}); source == "file" {
						c.Files.Bearer = file
					} else {
						c.Auth = httpworker.Auth{OAuth2: httpworker.OAuth2{TokenURL: tokens.URL, ClientID: "id", ClientSecret: "secret"}}
					}
				}
				var ask func() *answer
				if route == "http" {
					p := newProxyRigOf(t, func(_ *shaper.Bucket, c *httpworker.Config) { set(c) })
					p.answerWith(api.ServeHTTP)
					ask = func() *answer { return p.do("POST", "/v1/proxy/api/x", "{}") }
				} else {
					d := newRouteRigOf(t, func(_ string, c *llm.Config) { set(&c.HTTP) })
					d.answerWith(api.ServeHTTP)
					ask = func() *answer { return d.do("POST", "/v1/proxy/openai/v1/x", chatOf("gpt-5")) }
				}
				want := func(what string, status int, tokens ...string) {
					t.Helper()
					began := time.Now()
					a := ask()
					calls := api.calls()
					t.Logf("%s: %d %q after %v in %s", what, a.status, a.text, calls, time.Since(began).Round(time.Millisecond))
					if a.status != status || strings.Join(calls, " ") != strings.Join(tokens, " ") {
						t.Errorf("%s: %d %s after calls with %v, want %d and %v", what, a.status, a.text, calls, status, tokens)
					}
				}
				want("the first token", 200, "t1")
				api.swap = func() { put("t2"); api.valid = "t2" }
				want("replaced under way", 200, "t1", "t2")
				want("from then on", 200, "t2")
				if source == "file" {
					api.swap = func() { put("t3"); api.valid = "other" }
					want("replaced by a bad one", 401, "t2", "t3")
				} else {
					api.valid = "other"
				}
				last := map[string]string{"file": "t3", "oauth": "t2"}[source]
				for i := range 5 {
					want(fmt.Sprint("client ", i), 401, last)
				}
				if n := map[string]int{"oauth": 2}[source]; api.refetched != n {
					t.Errorf("%d requests for a token, want %d", api.refetched, n)
				}
			})
		}
	}
}
