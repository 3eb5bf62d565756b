package redisconn

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

func TestConnect(t *testing.T) {
	t.Parallel()
	client, err := Connect("redis://user:old@host:1/2", Options{Password: "new"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	o := client.(*redis.Client).Options()
	if o.Addr != "host:1" || o.DB != 2 || o.Username != "user" || o.Password != "new" {
		t.Errorf("address %s, db %d, user %s, password %s", o.Addr, o.DB, o.Username, o.Password)
	}
	// go-redis turns -1 into 0: no retry.
	if o.MaxRetries != 0 || !o.ContextTimeoutEnabled || o.DialTimeout != time.Second || o.ReadTimeout != time.Second ||
		o.WriteTimeout != time.Second || o.PoolTimeout != time.Second || o.PoolSize != 64 || !o.DisableIdentity ||
		o.MaintNotificationsConfig == nil || string(o.MaintNotificationsConfig.Mode) != "disabled" || o.DialerRetries != 1 {
		t.Errorf("options %+v", o)
	}
	other, err := Connect("redis://host", Options{Timeout: 5 * time.Second, PoolSize: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if o := other.(*redis.Client).Options(); o.ReadTimeout != 5*time.Second || o.PoolSize != 3 {
		t.Errorf("options %+v", o)
	}
	for _, url := range []string{"", "host:6379", "http://u:secret@host", "redis://u:secret@ho st", "redis://u:secret@host/x", "redis://u:sec%zzret@host"} {
		if _, err := Connect(url, Options{}); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec%zz") {
			t.Errorf("Connect(%q): %v", url, err)
		}
	}
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
	client, err := Connect("redis+cluster://u:p@h1,h2", Options{Password: "new"})
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

// TestNoFunctions counts what Redis was sent: without functions there is neither FCALL nor FUNCTION.
func TestNoFunctions(t *testing.T) {
	t.Parallel()
	for _, none := range []bool{false, true} {
		server := redistest.Start(t)
		client, err := Connect(server.URL(), Options{NoFunctions: none})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		_ = lua.RunAll(t.Context(), client, []lua.Call{{Script: lua.InspectResult, Keys: []string{"{x}"}}}) // refuses its arguments
		stats, err := client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"cmdstat_fcall:", "cmdstat_function|load:", "cmdstat_function|list:"} {
			if strings.Contains(stats, command) == none {
				t.Errorf("NoFunctions %t: Redis has run %s\n%s", none, command, stats)
			}
		}
		if strings.Contains(stats, "cmdstat_evalsha:") != none {
			t.Errorf("NoFunctions %t: Redis has run\n%s", none, stats)
		}
	}
}

// TestChangedLibraryIsLogged runs a script beside a library that another client has changed.
func TestChangedLibraryIsLogged(t *testing.T) {
	t.Parallel()
	server, log := redistest.Start(t), &strings.Builder{}
	if err := server.Client().FunctionLoad(t.Context(), lua.Library()+"-- and more").Err(); err != nil {
		t.Fatal(err)
	}
	client, err := Connect(server.URL(), Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = lua.RunAll(t.Context(), client, []lua.Call{{Script: lua.InspectResult, Keys: []string{"{x}"}}})
	for _, want := range []string{"level=ERROR", "has other code", "redis.functions = false"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q: %s", want, log)
		}
	}
}

// Redis closes a connection whose first command is large and has no password, before it has read it: the reset must not hide the reason.
func TestMissingPasswordIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "secret")
	client := must.Get(Connect("redis://"+server.Addr(), Options{NoFunctions: true}))(t)
	t.Cleanup(func() { _ = client.Close() })
	arguments := append([]any{"rpush", "jobs"}, slices.Repeat([]any{strings.Repeat("x", 64<<10)}, 20)...)
	for range 20 {
		if err := client.Do(t.Context(), arguments...).Err(); FailureOf(err) != Forbidden {
			t.Fatalf("failure %v, want %v: %v", FailureOf(err), Forbidden, err)
		}
	}
}
