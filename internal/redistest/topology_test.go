package redistest_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

func TestCluster(t *testing.T) {
	c := redistest.StartCluster(t)
	client := c.Client(t)
	set := func(value string) {
		t.Helper()
		must.OK(t, client.Set(t.Context(), "{busy}:key", value, 0).Err())
	}
	get := func(want string) {
		t.Helper()
		eventually(t, func() error { // once the client knows the new master
			if got, err := client.Get(t.Context(), "{busy}:key").Result(); err != nil || got != want {
				return fmt.Errorf("Get = %q, want %q: %w", got, want, err)
			}
			return nil
		})
	}
	set("before")
	first := c.MasterOf(t, "{busy}")
	c.Reshard(t, "{busy}")
	second := c.MasterOf(t, "{busy}")
	if second == first {
		t.Error("the slot has not moved")
	}
	get("before")
	must.OK(t, second.Client().Wait(t.Context(), 1, 0).Err())
	c.KillMaster(t, "{busy}")
	third := c.AwaitFailover(t, "{busy}", second)
	get("before")
	set("after")
	must.OK(t, second.Restart())
	c.AwaitReady(t)
	if now := c.MasterOf(t, "{busy}"); now != third {
		t.Errorf("the master is %s, want %s", now.Addr(), third.Addr())
	}
	get("after")
}

func TestSentinels(t *testing.T) {
	trio := redistest.StartSentinel(t)
	old := trio.Master(t)
	if old != trio.Servers[0] {
		t.Errorf("the master is %s", old.Addr())
	}
	old.Kill()
	next := trio.AwaitFailover(t, old)
	eventually(t, func() error {
		if got := trio.Master(t); got != next {
			return fmt.Errorf("the master is %s by the sentinels, and %s by its role", got.Addr(), next.Addr())
		}
		return nil
	})
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

func TestTLS(t *testing.T) {
	server, c := redistest.StartTLS(t)
	text := must.Get(os.ReadFile(c.CA))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	pair := must.Get(tls.LoadX509KeyPair(c.Cert, c.Key))(t)
	for _, test := range []struct {
		name   string
		config *tls.Config
		ok     bool
	}{
		{"by address", &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, true},
		{"by name", &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: redistest.ServerName}, true},
		{"no certificate of ours", &tls.Config{RootCAs: roots}, false},
		{"an authority that is not known", &tls.Config{Certificates: []tls.Certificate{pair}}, false},
	} {
		client := redis.NewClient(&redis.Options{Addr: server.TLSAddr(), TLSConfig: test.config, MaxRetries: -1, DialerRetries: 1})
		if err := client.Ping(t.Context()).Err(); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
		_ = client.Close()
	}
}
