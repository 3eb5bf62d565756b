package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/tundishtest"
)

// The permits that came back late in the last minute are counted over all processes, by cause.
func TestLatePermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		v := fleet.NewView(conn, 0)
		one, two := startProcess(t, conn, "dispatcher", "plain"), startProcess(t, conn, "dispatcher", "plain")
		pass(time.Until(time.Now().Truncate(fleet.HeartbeatInterval).Add(fleet.HeartbeatInterval + fleet.Watched/2)))
		returned := func(p *process, reason string, n int) {
			for range n {
				p.CountOutcome("plain", shaper.ResultReturned, shaper.Returned(reason), 0, "")
			}
		}
		one.counts("plain", 0, 0, 60, 0)
		returned(one, shaper.ReasonLateConnect, 20)
		returned(one, "stopped", 7)
		pass(20 * time.Second)
		returned(two, shaper.ReasonLateConnect, 10)
		returned(two, shaper.ReasonLateProcess, 10)
		pass(10 * time.Second)
		is := readSnapshot(t, v).Permits("plain")
		if is.Departed != 60 || is.Late[shaper.ReasonLateConnect] != 30 || is.Late[shaper.ReasonLateProcess] != 10 || is.Late[shaper.ReasonLateRedis] != 0 {
			t.Errorf("counted are %+v", is)
		}
		if want := "40 % of its permits came back unused in the last minute: connecting to the receiver took longer than permit_ttl (late_connect)"; !is.HoldBack() || is.String() != want {
			t.Errorf("told is %q, want %q", is.String(), want)
		}
		pass(45 * time.Second)
		if is := readSnapshot(t, v).Permits("plain"); is.Departed != 0 || is.Late[shaper.ReasonLateConnect] != 10 {
			t.Errorf("75 s later counted are %+v", is)
		}
		pass(time.Minute)
		if is := readSnapshot(t, v).Permits("plain"); is.HoldBack() || is.String() != "" {
			t.Errorf("after a quiet minute counted are %+v", is)
		}
	})
}
