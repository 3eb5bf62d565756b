package redisconn

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
