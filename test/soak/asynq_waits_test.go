//go:build soak

package soak

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/test/harness"
)

// TestAsynqRepliesLost loses replies under load: those to hand-overs, and those to each script by which a job is claimed, started, kept and
// settled. Nobody dies, so no job may run twice, with either way to settle.
func TestAsynqRepliesLost(t *testing.T) {
	t.Parallel()
	const rounds, each = 20, 40
	for _, way := range []struct {
		name, keys string
		servers    []*lua.Script // run by asynq servers
	}{
		{"handler", "", []*lua.Script{lua.Start, lua.Settle}},
		{"handover", "settle = \"handover\"\n", nil},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			u := startAsynqKilled(t, way.keys)
			ofServers := proxyTo(t, u.Redis)
			u.Plan.Tundish = "redis://" + ofServers.Addr()
			for range 2 {
				harness.StartAsynq(t, u.Plan)
			}
			harness.Run(t, u.Ops, "dispatcher", "run", "--config", u.config)
			lose := func(what string, proxy *faultproxy.Proxy, match string) {
				u.Sample()
				u.Post(fmt.Sprintf("%s-%s", way.name, what), each)
				select {
				case <-proxy.DropReply(match):
				case <-time.After(harness.Patience * 20 * time.Second):
					t.Fatalf("%s: no such request came", what)
				}
			}
			lost := 0
			for round := range rounds {
				lose(fmt.Sprint("handover-", round), u.handover, "asynq:{"+harness.AsynqQueue+"}:t:")
				lose(fmt.Sprint("claim-", round), u.tundish, lua.Claim.SHA()+"\r\n")
				lost += 2
				for _, script := range way.servers {
					lose(fmt.Sprintf("%s-%d", script.Name(), round), ofServers, script.SHA()+"\r\n")
					lost++
				}
			}
			if extra := u.End(); extra > 0 {
				t.Errorf("%d runs beyond the first, and nobody died", extra)
			}
			t.Logf("%d replies lost", lost)
		})
	}
}

// TestAsynqTasksWait stops the asynq servers under load for three leases. The tasks wait, and the dispatchers keep their leases: none is taken
// back, none is called poison, and no more are out there than max_in_flight. Then servers start again, and each job runs once.
func TestAsynqTasksWait(t *testing.T) {
	t.Parallel()
	const lease, jobs = 2 * time.Second, 1500
	u := harness.StartAsynqUnder(t, lease, 5*time.Millisecond)
	u.Post("wait", jobs)
	u.AwaitMore(200)
	for _, server := range u.Servers {
		server.Signal(t, syscall.SIGTERM)
	}
	for _, server := range u.Servers {
		<-server.Done
	}
	inspect := u.Tasks.Client()
	pending := func() int64 { return inspect.LLen(t.Context(), "asynq:{"+harness.AsynqQueue+"}:pending").Val() }
	harness.Await(t, time.Minute, "max_in_flight tasks wait", func() bool { u.Sample(); return pending() == u.MaxInFlight })
	began, ran := time.Now(), u.History.Check().Delivered
	harness.Await(t, time.Minute, "three leases have passed", func() bool {
		u.Sample()
		if n := pending(); n != u.MaxInFlight {
			t.Fatalf("%d tasks wait in asynq, want max_in_flight (%d)", n, u.MaxInFlight)
		}
		return time.Since(began) > 3*lease
	})
	if n := u.History.Check().Delivered; n != ran {
		t.Errorf("%d jobs ran without a server", n-ran)
	}
	for range 2 {
		harness.StartAsynq(t, u.Plan)
	}
	if extra := u.End(); extra > 0 {
		t.Errorf("%d runs beyond the first", extra)
	}
	for _, d := range u.Dispatchers {
		if out := d.Output.String(); strings.Contains(out, "msg=swept") || strings.Contains(out, "cause=poison") {
			t.Errorf("a lease was taken back:\n%s", out)
		}
	}
	t.Logf("%d jobs ran before the stop; %d tasks waited for %s, which is three leases", ran, u.MaxInFlight, 3*lease)
}

// TestAsynqTasksWaitWithoutADispatcher stops the only dispatcher in good order while tasks wait. Whatever starts within the lease runs under it. The
// next dispatcher hands over the rest again, and each job runs once.
func TestAsynqTasksWaitWithoutADispatcher(t *testing.T) {
	t.Parallel()
	const jobs = 120
	u := startAsynqKilled(t, "")
	d := harness.Run(t, u.Ops, "dispatcher", "run", "--config", u.config)
	u.Post("stop", jobs)
	for round := range 3 {
		harness.Await(t, time.Minute, "max_in_flight tasks wait", func() bool { return u.handedOver() >= int64(round+1)*killedInFlight })
		d.Stop(t)
		d = harness.Run(t, u.Ops, "dispatcher", "run", "--config", u.config)
	}
	for range 2 {
		harness.StartAsynq(t, u.Plan)
	}
	if extra := u.End(); extra > 0 {
		t.Errorf("%d runs beyond the first", extra)
	}
}
