package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/workers/httpworker"
)

// The files of secrets that are read again are known to what reads them.
func TestSecretFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return path
	}
	password, sentinel, bearer, key := file("password", "one"), file("sentinel", "two"), file("bearer", "three"), file("key", "four")
	path := file("config.toml", `
[redis]
url = "redis+sentinel://user@h1,h2/m?sentinel_user=looker"
password = "file:`+password+`"
[[buckets]]
name = "a"
rate = "1/s"
worker = "http"
[buckets.http]
base_url = "https://api.example.com"
auth.bearer = "file:`+bearer+`"
headers = {X-Key = "file:`+key+`", X-Plain = "7"}
[[buckets]]
name = "b"
rate = "1/s"
worker = "llm"
[buckets.llm]
api = "openai"
base_url = "https://api.example.com"
auth.oauth2 = {token_url = "https://t.example.com", client_id = "i", client_secret = "file:`+key+`", style = "body", params = {audience = "x"}}
`)
	c := must.Get(Load(Options{Path: path, Env: []string{"TUNDISH_REDIS_SENTINEL_PASSWORD_FILE=" + sentinel}}))(t)
	http, model := c.Buckets[0].HTTP.Worker(1), c.Buckets[1].LLM.Worker(1).HTTP
	if diff := cmp.Diff(httpworker.Files{Bearer: bearer, Headers: map[string]string{"X-Key": key}}, http.Files); diff != "" {
		t.Error(diff)
	}
	if o := model.Auth.OAuth2; model.Files.ClientSecret != key || o.ClientSecret != "four" || o.Style != httpworker.OAuth2Body || o.Params["audience"] != "x" {
		t.Errorf("%+v %+v", model.Files, o)
	}
	must.Equal(t, http.Auth.OAuth2.Style, httpworker.OAuth2Basic, "style by default")
	options := c.Redis.Options(nil)
	for _, next := range []string{"one", "another"} {
		file("password", next)
		file("sentinel", next)
		if user, got, err := options.Credentials(); user != "user" || got != next || err != nil {
			t.Errorf("%q %q %v", user, got, err)
		}
		if user, got, err := options.SentinelCredentials(); user != "looker" || got != next || err != nil {
			t.Errorf("of sentinels %q %q %v", user, got, err)
		}
	}
	must.OK(t, os.Remove(password))
	if _, _, err := options.Credentials(); err == nil {
		t.Error("a file that is gone is no error")
	}
}

// A URL of Redis in a file: its user and password are those that the file has now.
func TestURLOfRedisInAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "url")
	for i, url := range []string{"redis://u:one@h", "redis://v:two@h"} {
		must.OK(t, os.WriteFile(path, []byte(url), 0o600))
		c := must.Get(Load(Options{Env: []string{"TUNDISH_REDIS_URL_FILE=" + path}}))(t)
		if i > 0 {
			continue
		}
		read := c.Redis.Options(nil).Credentials
		must.OK(t, os.WriteFile(path, []byte("redis://v:two@h"), 0o600))
		if user, password, err := read(); user != "v" || password != "two" || err != nil {
			t.Errorf("%q %q %v", user, password, err)
		}
	}
	if c := mustLoad(t, "[redis]\nurl = \"redis://u:p@h\"\npassword = \"plain\"\n"); c.Redis.Options(nil).Credentials != nil {
		t.Error("what is in no file is read for each connection")
	}
}
