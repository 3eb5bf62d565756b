package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/tundishtest"
)

// Whatever beat or reply is lost, and though the counters of a bucket begin anew, the history has each count once.
func TestLostBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		v := fleet.NewView(conn, 0)
		d := startProcess(t, conn, "dispatcher", "plain", "idle")
		pass(6 * time.Second)
		departed := 0
		for round := range 40 { // also more than a minute in which no reply comes, and in which Redis is away
			d.link.lost.Store(round%10 < 4)
			d.link.away.Store(round >= 20 && round%10 >= 4)
			d.counts("plain", 0, 0, 3, 0)
			departed += 3
			pass(time.Duration(1+round%7) * time.Second)
		}
		d.link.lost.Store(false)
		d.link.away.Store(false)
		pass(12 * time.Second)
		d.RemoveBucket("plain") // by a reload, and by the next one it is there again
		d.counts("plain", 0, 0, 2, 0)
		departed += 2
		pass(12 * time.Second)
		points, err := v.History(t.Context(), "plain")
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, p := range points {
			sum += p.Departed
		}
		if sum != int64(departed) {
			t.Errorf("%d departures are in the history, of %d", sum, departed)
		}
		if s := look(t, v); !s.IsServed("plain") || !s.IsServed("idle") {
			t.Error("a bucket is not served any more")
		}
	})
}
