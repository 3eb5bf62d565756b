package cli_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// The status and the fleet show what processes have found: a loss of data, a refused configuration, a fault of a host, and clocks that differ.
func TestNoticesAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a")
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	member := must.Get(fleet.NewMember(fleet.Config{Redis: s.redis, Timeout: patience, Buckets: func() []string { return []string{"webhooks"} }, About: func() fleet.About {
		return fleet.About{
			Name: "dispatcher", Host: "web-1", Works: true, ClockSkew: -6.2, ReloadRefused: `c.toml:9: buckets[0] "webhooks".rate: is missing`,
			HostFaults: map[string]string{"webhooks": "the resolver does not answer"}, DataLost: &fleet.DataLoss{At: at, Buckets: []string{"webhooks"}, Count: 1},
		}
	}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		member.Run(ctx)
	}()
	defer func() { stop(); <-ended }()
	for _, command := range []string{"dispatcher status", "dispatcher fleet"} {
		want := []string{
			"Redis lost data, seen " + at.Format(time.RFC3339) + ": the settings of 1 bucket were gone (webhooks)",
			`dispatcher on web-1: its changed configuration is refused, and the previous one stays in force: c.toml:9: buckets[0] "webhooks".rate: is missing`,
			`dispatcher on web-1: cannot connect for bucket "webhooks", and claims less: the resolver does not answer`,
			"dispatcher on web-1: the clocks of Redis and of this host differ by 6s: run NTP on both",
		}
		eventually(t, command+" has the notices", func() bool {
			out := s.run(t, command).out
			for _, line := range want {
				if !strings.Contains(out, line) {
					return false
				}
			}
			return true
		})
	}
}

// A full Redis stands first in the status, with the command that says more.
func TestStatusOfAFullRedis(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a")
	if out := s.run(t, "dispatcher status --json").out; strings.Contains(out, `"redis"`) {
		t.Errorf("nothing is wrong with Redis: %s", out)
	}
	must.OK(t, s.redis.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	full := s.run(t, "dispatcher status")
	full.want(t, 0, "out of memory", "no job is stored until it has room", "dispatcher doctor", "webhooks")
	if strings.Index(full.out, "out of memory") > strings.Index(full.out, "BUCKET") {
		t.Errorf("it is not first:\n%s", full.out)
	}
	s.run(t, "dispatcher status --json").want(t, 0, `"redis": "`)
}
