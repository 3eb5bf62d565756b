package admission

import (
	"crypto/tls"
	"os"
	"path/filepath"
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
		if _, err := Connect(url, ConnectOptions{}); err == nil {
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
		client, err := Connect(url, ConnectOptions{})
		if err != nil {
			t.Fatalf("%q: %v", url, err)
		}
		_ = client.Close()
	})
}

func TestConnectToSentinelsAndClusters(t *testing.T) {
	t.Parallel()
	a, err := parseAddress("redis+sentinel://u:p@h1,h2/m/2?sentinel_user=s")
	if err != nil {
		t.Fatal(err)
	}
	a.options.MaxRetries, a.options.DialTimeout, a.options.ReadTimeout, a.options.ContextTimeoutEnabled = -1, time.Second, time.Second, true
	if o := a.failoverOptions("sp"); o.MasterName != "m" || o.DB != 2 || o.Username != "u" || o.SentinelUsername != "s" || o.SentinelPassword != "sp" ||
		o.MaxRetries != -1 || o.DialTimeout <= o.ReadTimeout || !o.ContextTimeoutEnabled {
		t.Errorf("options %+v", o)
	}
	client, err := Connect("redis+cluster://u:p@h1,h2", ConnectOptions{Password: "new"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	o := client.(*redis.ClusterClient).Options()
	if !slices.Equal(o.Addrs, []string{"h1:6379", "h2:6379"}) || o.Username != "u" || o.Password != "new" {
		t.Errorf("addresses %v, user %s, password %s", o.Addrs, o.Username, o.Password)
	}
	if o.MaxRedirects != 3 || o.MaxRetries != -1 || !o.ContextTimeoutEnabled || o.ReadTimeout != time.Second || o.PoolSize != 64 ||
		o.ClusterStateReloadInterval != time.Second || !o.DisableRoutingPolicies || !o.DisableIdentity || o.Protocol != 2 ||
		o.MaintNotificationsConfig == nil || string(o.MaintNotificationsConfig.Mode) != "disabled" || o.DialerRetries != 1 {
		t.Errorf("options %+v", o)
	}
}

func TestTLSOptions(t *testing.T) {
	t.Parallel()
	noPEM := filepath.Join(t.TempDir(), "no.pem")
	if err := os.WriteFile(noPEM, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		url  string
		tls  TLSOptions
		want string
	}{
		"not TLS":          {"redis://h", TLSOptions{ServerName: "x"}, "write rediss"},
		"no such file":     {"rediss://h", TLSOptions{CA: "/no/such/file"}, "/no/such/file"},
		"no certificate":   {"rediss+cluster://h", TLSOptions{CA: noPEM}, "no certificate in PEM"},
		"only one of two":  {"rediss://h", TLSOptions{Cert: noPEM}, "one of the two is missing"},
		"no pair":          {"rediss://h", TLSOptions{Cert: noPEM, Key: noPEM}, "read the certificate"},
		"nothing is given": {"redis://h", TLSOptions{}, ""},
		"a name":           {"rediss://h", TLSOptions{ServerName: "x"}, ""},
	} {
		client, err := Connect(test.url, ConnectOptions{TLS: test.tls})
		if err == nil {
			_ = client.Close()
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}
