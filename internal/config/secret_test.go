package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// TestSecretsDoNotShow prints a configuration with secrets in every way.
func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*Config{
		"literal": mustLoad(t, "[redis]\nurl = \"redis://u:hunter2@db/1\"\npassword = \"hunter2\"\n"),
		"env":     mustLoad(t, "[redis]\nurl = \"env:URL\"\npassword = \"env:PW\"\n", "URL=redis://u:hunter2@db/1", "PW=hunter2"),
		"file":    mustLoad(t, "[redis]\nurl = \"redis://u:hunter2@db/1\"\npassword = \"file:/secret\"\n"),
		"_FILE":   mustLoad(t, "", "TUNDISH_REDIS_PASSWORD_FILE=/secret", "TUNDISH_REDIS_URL=redis://u:hunter2@db/1"),
	} {
		if c.Redis.Password.Reveal() != "hunter2" || c.Redis.URL.Reveal() != "redis://u:hunter2@db/1" {
			t.Errorf("%s: the secrets are not there", name)
		}
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb+"\n", *c)
			fmt.Fprintf(&out, verb+verb+"\n", c.Redis.Password, c.Redis.URL)
		}
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).Info("loaded", "password", c.Redis.Password, "url", c.Redis.URL, "redis", c.Redis)
		}
		if err := json.NewEncoder(&out).Encode(c); err != nil {
			t.Error(err)
		}
		if err := c.WriteTOML(&out); err != nil {
			t.Error(err)
		}
		fmt.Fprint(&out, c.Effective(), c.Warnings())
		if strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), fmt.Sprintf("%x", "hunter2")) {
			t.Errorf("%s: a secret shows in\n%s", name, out.String())
		}
		if !strings.Contains(out.String(), "redis://u:***@db/1") {
			t.Errorf("%s: the URL does not show in\n%s", name, out.String())
		}
	}
	must.Equal(t, Secret("").String(), "", "no secret looks like one")
}

// The secrets of webhooks stay secret in every output too, and arrive at the worker.
func TestSecretsOfWebhooksDoNotShow(t *testing.T) {
	t.Parallel()
	const secret, old = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	const text = "[[buckets]]\nname = \"b\"\nrate = \"1/s\"\n[buckets.webhook]\nurl = \"https://h/\"\n" +
		"secrets = [\"env:NEW\", \"" + old + "\"]\negress_proxy = \"env:PROXY\"\n"
	c := mustLoad(t, text, "NEW="+secret, "PROXY=http://u:hunter2@proxy:3128")
	worker := c.Buckets[0].Webhook.Worker(1)
	if len(worker.Secrets) != 2 || worker.Secrets[0] != secret || worker.Secrets[1] != old || worker.EgressProxy != "http://u:hunter2@proxy:3128" {
		t.Errorf("the worker has %q and %q", worker.Secrets, worker.EgressProxy)
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		fmt.Fprintf(&out, verb+"\n", *c)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("loaded", "webhook", c.Buckets[0].Webhook)
	if err := errors.Join(json.NewEncoder(&out).Encode(c), c.WriteTOML(&out)); err != nil {
		t.Error(err)
	}
	fmt.Fprint(&out, c.Effective(), c.Warnings())
	for _, part := range []string{"MfKQ9", "C2FVs", "hunter2", fmt.Sprintf("%x", "hunter2")} {
		if strings.Contains(out.String(), part) {
			t.Errorf("a secret shows in\n%s", out.String())
		}
	}
	for _, part := range []string{`secrets = ["***", "***"]`, `egress_proxy = "***"`} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%s is not in\n%s", part, out.String())
		}
	}
}

// The path and the query of every URL of a receiver stay secret, and so do the names of users and the payloads of schedules. They arrive
// where they are used, and a change of one is a change.
func TestSecretURLsDoNotShow(t *testing.T) {
	t.Parallel()
	const text = `
[[buckets]]
name = "hooks"
rate = "1/s"
webhook.url = "https://hooks.example/hunter2?k=hunter2"
[[buckets]]
name = "api"
rate = "1/s"
worker = "http"
http.base_url = "env:BASE"
http.auth.basic = { user = "hunter2", password = "hunter2" }
callbacks = { bucket = "hooks", url = "https://told.example/hunter2", failure_url = "https://failed.example/?hunter2" }
[[buckets]]
name = "token"
rate = "1/s"
worker = "http"
http.base_url = "https://plain.example"
http.auth.oauth2 = { token_url = "https://token.example/hunter2", client_id = "c", client_secret = "hunter2" }
[[hooks]]
events = ["job.dead"]
bucket = "hooks"
url = "https://ops.example/hunter2"
[[schedules]]
name = "nightly"
cron = "@daily"
bucket = "hooks"
url = "https://nightly.example/hunter2"
payload = '"env:hunter2"'
[[schedules]]
name = "path"
cron = "@daily"
bucket = "api"
url = "/hunter2"
`
	c := mustLoad(t, text, "BASE=https://base.example/hunter2")
	hooks, api := c.Buckets[0], c.Buckets[1]
	if got := api.HTTP.Worker(1); got.BaseURL != "https://base.example/hunter2" || got.Auth.Basic.User != "hunter2" || hooks.Webhook.Worker(1).URL != "https://hooks.example/hunter2?k=hunter2" ||
		c.Hooks[0].URL != "https://ops.example/hunter2" || api.Callbacks.FailureURL != "https://failed.example/?hunter2" ||
		c.Buckets[2].HTTP.Worker(1).Auth.OAuth2.TokenURL != "https://token.example/hunter2" || string(hooks.Schedules[0].Job.Payload) != `"env:hunter2"` {
		t.Error("something did not arrive")
	}
	var out bytes.Buffer
	if err := c.WriteTOML(&out); err != nil {
		t.Error(err)
	}
	if _, err := load(out.String()); err == nil || !strings.Contains(err.Error(), "is redacted: give the whole URL") {
		t.Errorf("what was printed is taken: %v", err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		fmt.Fprintf(&out, verb+"\n", hooks.Webhook)
		fmt.Fprintf(&out, verb+"\n", *api.HTTP)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("loaded", "webhook", hooks.Webhook, "http", *api.HTTP)
	if err := json.NewEncoder(&out).Encode([]any{hooks.Webhook, api.HTTP, c.Effective(), c.Warnings()}); err != nil {
		t.Error(err)
	}
	if strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), fmt.Sprintf("%x", "hunter2")) {
		t.Errorf("a secret shows in\n%s", out.String())
	}
	for _, part := range []string{
		`url = "https://hooks.example/***"`, `base_url = "https://base.example/***"`, `base_url = "https://plain.example"`, `user = "***"`, `token_url = "https://token.example/***"`,
		`url = "https://told.example/***"`, `failure_url = "https://failed.example/***"`, `url = "https://ops.example/***"`, `url = "https://nightly.example/***"`, `payload = "***"`,
		`url = "/***"`,
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%s is not in\n%s", part, out.String())
		}
	}
	for _, changed := range []string{"https://hooks.example/hunter2", "https://nightly.example/hunter2", "env:hunter2"} {
		other := mustLoad(t, strings.Replace(text, changed, changed+"x", 1), "BASE=https://base.example/hunter2")
		if got := Changes(c, other); !slices.ContainsFunc(got, func(c Change) bool { return strings.HasSuffix(c.Path, ".url") || strings.HasSuffix(c.Path, ".payload") }) {
			t.Errorf("%s: %v", changed, got)
		}
	}
}

func TestRedisURLShows(t *testing.T) {
	t.Parallel()
	for _, try := range []struct{ url, want string }{
		{"embedded", "embedded"},
		{"", ""},
		{"redis://db:6379/0", "redis://db:6379/0"},
		{"redis://:pw@db", "redis://:***@db"},
		{"redis://pw@db", "redis://***@db"}, // a user to us, a password to other programs
		{"redis://pw:@db", "redis://***@db"},
		{"redis://pw%3Apw@db", "redis://***@db"},
		{"redis+sentinel://pw@h1,h2/m", "redis+sentinel://***@h1,h2/m"},
		{"rediss://u:pw@db/3?pool_size=5", "rediss://u:***@db/3?pool_size=5"},
		{"redis+sentinel://u:pw@h1,h2/m/1", "redis+sentinel://u:***@h1,h2/m/1"},
		{"rediss+cluster://:pw@h1:1,h2:2", "rediss+cluster://:***@h1:1,h2:2"},
		{"redis+sentinel://u:pw@h1,h2", "***"},
		{"redis://u:p#w@db", "***"},
		{"redis://db?password=pw", "***"},
		{"u:pw@db", "***"},
		{"pw", "***"},
	} {
		must.Equal(t, RedisURL(try.url).String(), try.want, "%s: got", try.url)
	}
}
