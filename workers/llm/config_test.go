package llm

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
)

func valid(api API) Config {
	c := DefaultConfig(api)
	c.HTTP.BaseURL = "https://api.example.com"
	return c
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, api := range []API{OpenAI, Anthropic} {
		c := valid(api)
		must.OK(t, c.Validate())
		must.Equal(t, c.CountMaxTokens, (api == OpenAI), "%s: count_max_tokens is", api)
	}
	for want, change := range map[string]func(*Config){
		`llm.api: "": want "openai" or "anthropic"`: func(c *Config) { c.API = "" },
		`llm.api: "gemini": want`:                   func(c *Config) { c.API = "gemini" },
		`llm.base_url: is missing`:                  func(c *Config) { c.HTTP.BaseURL = "" },
		`llm.base_url: the address 127.0.0.1`:       func(c *Config) { c.HTTP.BaseURL = "http://127.0.0.1" },
		`can let it through`:                        func(c *Config) { c.HTTP.BaseURL = "http://127.0.0.1" },
		`llm.timeout: `:                             func(c *Config) { c.HTTP.Timeout = 0 },
		`llm.auth: has bearer and basic`:            func(c *Config) { c.HTTP.Auth.Bearer, c.HTTP.Auth.Basic.User = "hunter2", "anna" },
		`llm.auth.oauth2.token_url: the address 10.0.0.1`: func(c *Config) {
			c.HTTP.Auth.OAuth2 = httpworker.OAuth2{TokenURL: "https://10.0.0.1", ClientID: "id", ClientSecret: "hunter2"}
		},
		`llm.models: "[": want a pattern of models`:  func(c *Config) { c.Models = []string{"["} },
		`llm.models: "": want a pattern`:             func(c *Config) { c.Models = []string{""} },
		`llm.models: "gpt-*": is in the list twice`:  func(c *Config) { c.Models = []string{"gpt-*", "gpt-*"} },
		`llm.models: 101 patterns: want at most 100`: func(c *Config) { c.Models = make([]string, 101) },
		`llm.expected_output: -1: want 0 to`:         func(c *Config) { c.ExpectedOutput = -1 },
		`llm.expected_output: 2147483648: want 0 to`: func(c *Config) { c.ExpectedOutput = shaper.MaxBudgetAmount + 1 },
		`llm.headers: Authorization: is the worker's`: func(c *Config) {
			c.HTTP.Auth.Bearer, c.HTTP.Headers = "t", map[string]string{"Authorization": "hunter2"}
		},
		`llm.tls.key: is missing`: func(c *Config) { c.HTTP.TLS.Cert = "c" },
		`llm.egress_proxy: want`:  func(c *Config) { c.HTTP.EgressProxy = "ftp://hunter2" },
		`retry.statuses: "410"`:   func(c *Config) { c.HTTP.Policy.Statuses = []string{"410"} },
	} {
		c := valid(OpenAI)
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "http.") {
			t.Errorf("want %q, got %v", want, err)
		}
		if w, err := New(c, nil, nil); err == nil {
			w.Close()
			t.Errorf("a worker without %q", want)
		}
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		patterns []string
		model    string
		want     bool
	}{
		{nil, "anything/at:all", true},
		{[]string{"gpt-4o-mini*"}, "gpt-4o-mini", true},
		{[]string{"gpt-4o-mini*"}, "gpt-4o-mini-2024-07-18", true},
		{[]string{"gpt-4o-mini*"}, "gpt-4o", false},
		{[]string{"gpt-4o-mini*"}, "GPT-4o-mini", false},
		{[]string{"gpt-*", "o[34]"}, "o4", true},
		{[]string{"*"}, "meta/llama", false},
		{[]string{"*/*"}, "meta/llama", true},
	} {
		must.Equal(t, (Config{Models: c.patterns}).Takes(c.model), c.want, "%q allows %q", c.patterns, c.model)
	}
}

// A flow's own settings are those of a worker http, but for the name of the worker.
func TestCheckFlow(t *testing.T) {
	t.Parallel()
	c := valid(OpenAI)
	if err := c.CheckFlow(&shaper.OwnDelivery{URL: "https://own.example.com", Headers: map[string]string{"Authorization": "theirs"}}); err != nil {
		t.Error(err)
	}
	if err := c.CheckFlow(&shaper.OwnDelivery{Secrets: []string{"whsec_x"}}); err == nil || !strings.Contains(err.Error(), "worker llm") {
		t.Errorf("secrets: %v", err)
	}
}
