package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/tundishtest"
)

// What succeeded counts for half a minute, what was tried for a minute, by all processes.
func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		view := fleet.NewView(conn, 0)
		one, two := startProcess(t, conn, "dispatcher", "mail"), startProcess(t, conn, "dispatcher", "mail")
		pass(6 * time.Second)
		before := time.Now()
		for range 4 {
			one.CountOutcome("mail", shaper.ResultDone, shaper.Done(200), 0, "")
		}
		one.CountSucceeded("mail", 4)
		two.counts("mail", 5, 0, 0, 0)
		two.CountOutcome("mail", shaper.ResultDead, shaper.Dead("http_401", ""), 0, "")
		two.CountOutcome("mail", shaper.ResultHeld, shaper.Retry("http_401", ""), 0, "")
		two.CountOutcome("mail", shaper.ResultReturned, shaper.Returned("late"), 0, "")
		pass(12 * time.Second)
		want := fleet.Progress{Window: 30 * time.Second, Arrived: 5, Succeeded: 4, Gone: 5, Attempts: 6, Unsuccessful: 2, Reason: "http_401"}
		got := readSnapshot(t, view).Progress("mail")
		if got.Last.Before(before) || got.Last.After(before.Add(6*time.Second)) {
			t.Errorf("the last success was at %s, want just after %s", got.Last, before)
		}
		if got.Last = (time.Time{}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		pass(30 * time.Second)
		if got = readSnapshot(t, view).Progress("mail"); got.Succeeded != 0 || got.Arrived != 0 || got.Attempts != 6 || got.Last.IsZero() {
			t.Errorf("half a minute later: %+v", got)
		}
		pass(30 * time.Second)
		if got = readSnapshot(t, view).Progress("mail"); got.Attempts != 0 || got.Last.IsZero() {
			t.Errorf("a minute later: %+v", got)
		}
	})
}
