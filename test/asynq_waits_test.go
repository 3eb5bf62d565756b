//go:build soak

package test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/lua"
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
			ofServers := proxyTo(t, u.redis)
			u.plan.Tundish = "redis://" + ofServers.Addr()
			for range 2 {
				startAsynq(t, u.plan)
			}
			run(t, u.ops, "dispatcher", "run", "--config", u.config)
			lose := func(what string, proxy *faultproxy.Proxy, match string) {
				u.sample()
				u.post(fmt.Sprintf("%s-%s", way.name, what), each)
				select {
				case <-proxy.DropReply(match):
				case <-time.After(patience * 20 * time.Second):
					t.Fatalf("%s: no such request came", what)
				}
			}
			lost := 0
			for round := range rounds {
				lose(fmt.Sprint("handover-", round), u.handover, "asynq:{"+asynqQueue+"}:t:")
				lose(fmt.Sprint("claim-", round), u.tundish, lua.Claim.SHA()+"\r\n")
				lost += 2
				for _, script := range way.servers {
					lose(fmt.Sprintf("%s-%d", script.Name(), round), ofServers, script.SHA()+"\r\n")
					lost++
				}
			}
			if extra := u.end(); extra > 0 {
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
	u := startAsynqUnder(t, lease, 5*time.Millisecond)
	u.post("wait", jobs)
	u.awaitMore(200)
	for _, server := range u.servers {
		server.signal(t, syscall.SIGTERM)
	}
	for _, server := range u.servers {
		<-server.done
	}
	inspect := u.tasks.Client()
	pending := func() int64 { return inspect.LLen(t.Context(), "asynq:{"+asynqQueue+"}:pending").Val() }
	await(t, time.Minute, "max_in_flight tasks wait", func() bool { u.sample(); return pending() == u.maxInFlight })
	began, ran := time.Now(), u.history.Check().Delivered
	await(t, time.Minute, "three leases have passed", func() bool {
		u.sample()
		if n := pending(); n != u.maxInFlight {
			t.Fatalf("%d tasks wait in asynq, want max_in_flight (%d)", n, u.maxInFlight)
		}
		return time.Since(began) > 3*lease
	})
	if n := u.history.Check().Delivered; n != ran {
		t.Errorf("%d jobs ran without a server", n-ran)
	}
	for range 2 {
		startAsynq(t, u.plan)
	}
	if extra := u.end(); extra > 0 {
		t.Errorf("%d runs beyond the first", extra)
	}
	for _, d := range u.dispatchers {
		if out := d.output.String(); strings.Contains(out, "msg=swept") || strings.Contains(out, "cause=poison") {
			t.Errorf("a lease was taken back:\n%s", out)
		}
	}
	t.Logf("%d jobs ran before the stop; %d tasks waited for %s, which is three leases", ran, u.maxInFlight, 3*lease)
}

// TestAsynqTasksWaitWithoutADispatcher stops the only dispatcher in good order while tasks wait. Whatever starts within the lease runs under it. The
// next dispatcher hands over the rest again, and each job runs once.
func TestAsynqTasksWaitWithoutADispatcher(t *testing.T) {
	t.Parallel()
	const jobs = 120
	u := startAsynqKilled(t, "")
	d := run(t, u.ops, "dispatcher", "run", "--config", u.config)
	u.post("stop", jobs)
	for round := range 3 {
		await(t, time.Minute, "max_in_flight tasks wait", func() bool { return u.handedOver() >= int64(round+1)*killedInFlight })
		d.stop(t)
		d = run(t, u.ops, "dispatcher", "run", "--config", u.config)
	}
	for range 2 {
		startAsynq(t, u.plan)
	}
	if extra := u.end(); extra > 0 {
		t.Errorf("%d runs beyond the first", extra)
	}
}
