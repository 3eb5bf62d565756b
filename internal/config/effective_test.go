package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

const printedExample = `
[redis]
url = "redis://u:***@db"                   # config.toml:3
embedded_listen = "127.0.0.1:6399"         # default
password = "***"                           # env TUNDISH_REDIS_PASSWORD
`

func TestEffective(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
[redis]
url = "redis://u:hunter2@db"
[[keys]]
name = "k"
sha256 = "ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789"
roles = ["check"]
tier = "a.b"
[[limits]]
name = "l"
limit = "5/m"
tiers = { "a.b" = "9/m" }
[[buckets]]
name = "b"
rate = "7/m"
retry = { max_attempts = 3 }
`, "TUNDISH_REDIS_PASSWORD=hunter2")
	for _, want := range []Setting{
		{"redis.url", `"redis://u:***@db"`, "config.toml:3"},
		{"redis.password", `"***"`, "env TUNDISH_REDIS_PASSWORD"},
		{"dispatcher.lease", `"30s"`, "default"},
		{`keys[0] "k".sha256`, `"abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789"`, "config.toml:6"},
		{`limits[0] "l".tiers."a.b"`, `"9/m"`, "config.toml:12"},
		{`limits[0] "l".on_store_failure`, `"closed"`, "default"},
		{`limits[0] "l".burst`, "5", "default"},
		{`limits[0] "l".per`, "[]", "default"},
		{`buckets[0] "b".rate`, `"7/m"`, "config.toml:15"},
		{`buckets[0] "b".max_payload`, `"256KiB"`, "default"},
		{`buckets[0] "b".retry.max_attempts`, "3", "config.toml:16"},
		{`buckets[0] "b".retry.max_backoff`, `"12h"`, "default"},
	} {
		must.Equal(t, settingAt(c, want.Key), want, "got")
	}
	var out strings.Builder
	must.OK(t, c.WriteTOML(&out))
	if !strings.Contains(out.String(), printedExample) {
		t.Errorf("got\n%s\nwant in it\n%s", out.String(), printedExample)
	}
}

// TestWriteTOMLReadsBack loads what was printed and wants the same.
func TestWriteTOMLReadsBack(t *testing.T) {
	t.Parallel()
	text := strings.Replace(full, "app:hunter2@", "", 1)
	before := mustLoad(t, text)
	var out strings.Builder
	must.OK(t, before.WriteTOML(&out))
	after := mustLoad(t, strings.ReplaceAll(out.String(), "https://example.com/***", "https://example.com/hook"))
	before.printed, after.printed, before.written, after.written = nil, nil, nil, nil
	for _, c := range []*Config{before, after} { // an empty list and none are the same
		for i := range c.Buckets {
			if len(c.Buckets[i].Webhook.AllowNetworks) == 0 {
				c.Buckets[i].Webhook.AllowNetworks = nil
			}
			if len(c.Buckets[i].Quotas) == 0 {
				c.Buckets[i].Quotas = nil
			}
		}
		for i := range c.Pools {
			if len(c.Pools[i].Quotas) == 0 {
				c.Pools[i].Quotas = nil
			}
		}
		for i := range c.Limits {
			if len(c.Limits[i].Per) == 0 {
				c.Limits[i].Per = nil
			}
			if len(c.Limits[i].Tiers) == 0 {
				c.Limits[i].Tiers = nil
			}
		}
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("got\n%+v\nwant\n%+v\nfrom\n%s", after, before, out.String())
	}
}
