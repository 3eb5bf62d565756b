package httpworker

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	valid := DefaultConfig()
	valid.BaseURL = "https://api.example.com/v1"
	must.OK(t, valid.Validate())
	for want, change := range map[string]func(*Config){
		"http.base_url: is missing":                  func(c *Config) { c.BaseURL = "" },
		"http.base_url: holds user information":      func(c *Config) { c.BaseURL = "https://hunter2@example.com" },
		"http.base_url: the address 127.0.0.1":       func(c *Config) { c.BaseURL = "http://127.0.0.1/" },
		"http.timeout: ":                             func(c *Config) { c.Timeout = 0 },
		"http.concurrency: 0":                        func(c *Config) { c.Concurrency = 0 },
		"http.auth: has bearer and basic":            func(c *Config) { c.Auth.Bearer, c.Auth.Basic.User = "hunter2", "anna" },
		"http.auth.bearer: holds":                    func(c *Config) { c.Auth.Bearer = "hunter2\n" },
		"http.auth.basic.user: holds a colon":        func(c *Config) { c.Auth.Basic.User = "a:b" },
		"http.auth.header.name: \"Host\"":            func(c *Config) { c.Auth.Header = Header{"Host", "hunter2"} },
		"http.auth.header.value: is missing":         func(c *Config) { c.Auth.Header.Name = "X-A" },
		"http.auth.oauth2.token_url: want":           func(c *Config) { c.Auth.OAuth2.ClientID = "id" },
		"http.auth.oauth2.client_secret: is missing": func(c *Config) { c.Auth.OAuth2 = OAuth2{TokenURL: "https://a.example", ClientID: "id"} },
		"http.auth.oauth2.token_url: the address 10.0.0": func(c *Config) {
			c.Auth.OAuth2 = OAuth2{TokenURL: "https://10.0.0.1", ClientID: "id", ClientSecret: "hunter2"}
		},
		"http.headers: Authorization: is the worker's": func(c *Config) { c.Auth.Bearer, c.Headers = "t", map[string]string{"Authorization": "hunter2"} },
		"http.headers: X A: is not a header's name":    func(c *Config) { c.Headers = map[string]string{"X A": "hunter2"} },
		"http.tls.cert: ":          func(c *Config) { c.BaseURL, c.TLS.Cert, c.TLS.Key = "http://api.example.com", "c", "k" },
		"http.tls.key: is missing": func(c *Config) { c.TLS.Cert = "c" },
		"http.egress_proxy: want":  func(c *Config) { c.EgressProxy = "ftp://hunter2" },
		"retry.statuses: \"410\"":  func(c *Config) { c.Policy.Statuses = []string{"410"} },
	} {
		c := valid
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// A batch is one request below the base URL, with the credentials of the bucket and a key of its own.
func TestBatch(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	c := configOf(a)
	c.Auth.Bearer = "secret"
	w := workerOf(t, c)
	batch := &shaper.Batch{ID: "batch_c_1"}
	for _, id := range []string{"a", "b"} {
		attempt := shaper.NewAttempt(time.Now(), time.Minute, nil)
		attempt.ID, attempt.URL, attempt.Method, attempt.Payload = id, "/bulk?x=1", "PUT", []byte(`"`+id+`"`)
		batch.Attempts = append(batch.Attempts, attempt)
	}
	outcomes := w.DeliverBatch(t.Context(), batch)
	if len(outcomes) != 2 || outcomes[0].Result != shaper.ResultDone || outcomes[1].Result != shaper.ResultDone {
		t.Errorf("the outcomes are %+v", outcomes)
	}
	got := a.last()
	if got.method != "PUT" || got.uri != "/v1/bulk?x=1" || got.body != `[{"id":"a","attempt":1,"data":"a"},{"id":"b","attempt":1,"data":"b"}]` {
		t.Errorf("the request is %+v", got)
	}
	if h := got.header; h.Get("Idempotency-Key") != "batch_c_1" || h.Get("Authorization") != "Bearer secret" || h.Get("Content-Type") != "application/json" {
		t.Errorf("the headers are %v", got.header)
	}
	a.answer = func(*http.Request) int { return http.StatusServiceUnavailable }
	for _, outcome := range w.DeliverBatch(t.Context(), batch) {
		if outcome.Result != shaper.ResultRetry || outcome.Signal != shaper.SignalThrottled {
			t.Errorf("the outcome is %+v", outcome)
		}
	}
}
