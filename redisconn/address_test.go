package redisconn

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]address{
		"redis://host": {topology: single},
		"redis+sentinel://u:p%40ss@h1,h2:1/mymaster": {
			topology: sentinel, hosts: []string{"h1:26379", "h2:1"}, master: "mymaster",
			options: &redis.Options{Username: "u", Password: "p@ss"},
		},
		"redis+sentinel://h1,h1:26379/m%20m/3?sentinel_user=looker&client_name=me": {
			topology: sentinel, hosts: []string{"h1:26379"}, master: "m m", sentinelUser: "looker",
			options: &redis.Options{DB: 3, ClientName: "me"},
		},
		"rediss+sentinel://[::1]:5,10.0.0.1/m": {
			topology: sentinel, hosts: []string{"[::1]:5", "10.0.0.1:26379"}, master: "m", options: &redis.Options{TLSConfig: &tls.Config{}},
		},
		"redis+cluster://:pw@h1,h2:7000/": {
			topology: cluster, hosts: []string{"h1:6379", "h2:7000"}, options: &redis.Options{Password: "pw"},
		},
		"rediss+cluster://h1?conn_max_idle_time=5m": {
			topology: cluster, hosts: []string{"h1:6379"}, options: &redis.Options{TLSConfig: &tls.Config{}, ConnMaxIdleTime: 5 * time.Minute},
		},
	} {
		got, err := parseAddress(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got.topology != want.topology || !slices.Equal(got.hosts, want.hosts) || got.master != want.master || got.sentinelUser != want.sentinelUser {
			t.Errorf("%s: got %+v, want %+v", url, got, want)
		}
		if w, g := want.options, got.options; w != nil && (g.Username != w.Username || g.Password != w.Password || g.DB != w.DB ||
			g.ClientName != w.ClientName || g.ConnMaxIdleTime != w.ConnMaxIdleTime || (g.TLSConfig == nil) != (w.TLSConfig == nil)) {
			t.Errorf("%s: options %+v, want %+v", url, g, w)
		}
		if got.topology != single && got.options.TLSConfig != nil && got.options.TLSConfig.ServerName != "" {
			t.Errorf("%s: every server would have to be %s", url, got.options.TLSConfig.ServerName)
		}
	}
}

func TestParseAddressRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                            "want \"redis://",
		"host:6379":                   "want \"redis://",
		"http://hunter2@h":            "want \"redis://",
		"redis://u:hunter2#@h":        "percent-encode",
		"redis://u:hun/ter2@h":        "percent-encode",
		"redis://h?password=hunter2":  "after the question mark",
		"rediss://h?skip_verify=true": "accepts the certificate of any server",
		"rediss+cluster://h1,h2?a=b&skip_verify=1":        "accepts the certificate of any server",
		"redis+sentinel://h1,h2":                          "does not name the master",
		"redis+sentinel://h1/m/hunter2x":                  "database number",
		"redis+sentinel://h1/m?sentinel_password=hunter2": "after the question mark",
		"redis+sentinel:///m":                             "not host:port",
		"redis+sentinel://h1,,h2/m":                       "not host:port",
		"redis+sentinel://h1:0/m":                         "1 to 65535",
		"redis+cluster://h1:99999":                        "1 to 65535",
		"redis+cluster://u:hun/ter2@h1":                   "not host:port",
		"redis+cluster://h1/1":                            "has no databases",
		"redis+cluster://h1?sentinel_user=me":             "not one of Redis",
		"redis+cluster://h1?x=%zz":                        "question mark",
	} {
		_, err := parseAddress(url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
		if _, err := Connect(url, Options{}); err == nil {
			t.Errorf("Connect takes %s", url)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, url := range []string{
		"redis://u:p@h:1/2?client_name=x", "redis+sentinel://u:p@h1:1,h2:2/master/3?sentinel_user=x", "rediss+cluster://[::1]:7000,h2", "redis+cluster://u:p,q@h1/?a=b#c",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		const secret = "hunter2canary"
		// A password must not be seen, wherever it stands before the last "@".
		if scheme, rest, ok := strings.Cut(url, "://"); ok && !strings.Contains(url, "hunter") {
			with := scheme + "://u:" + secret + "@" + rest
			if shown := RedactURL(with); strings.Contains(shown, secret) {
				t.Errorf("%q is shown as %q", with, shown)
			}
			if _, err := parseAddress(with); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: %v", with, err)
			}
		}
		a, err := parseAddress(url)
		if err != nil {
			return
		}
		if a.options == nil || a.topology != single && len(a.hosts) == 0 || a.topology == sentinel && a.master == "" {
			t.Errorf("%q: %+v", url, a)
		}
		client, err := Connect(url, Options{})
		if err != nil {
			t.Fatalf("%q: %v", url, err)
		}
		_ = client.Close()
	})
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://host:6379/0":               "redis://host:6379/0",
		"redis://user:secret@host:6379":     "redis://user:***@host:6379",
		"rediss://:secret@host":             "rediss://:***@host",
		"redis://u:se@cr:et@host/1":         "redis://u:***@host/1",
		"embedded":                          "embedded",
		"user:secret@host:6379":             "***@host:6379",
		"redis+cluster://u:secret@h1,h2":    "redis+cluster://u:***@h1,h2",
		"redis://secret@host":               "redis://***@host",
		"redis://secret:@host":              "redis://***@host",
		"redis://u:secret@h/0?a=b&password": "redis://u:***@h/0?a=b&password",
		"redis://h/0?a=b&Password=secret":   "redis://h/0?a=b&Password=***",
		"redis+sentinel://u:s,t@h1,h2/m":    "redis+sentinel://u:***@h1,h2/m",
	} {
		if got := RedactURL(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}
