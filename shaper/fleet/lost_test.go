package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/tundishtest"
)

// Whatever heartbeat or reply is lost, and though the counters of a bucket begin anew, the history has each count once.
func TestLostHeartbeats(t *testing.T) {
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
		if s := readSnapshot(t, v); !s.IsServed("plain") || !s.IsServed("idle") {
			t.Error("a bucket is not served any more")
		}
	})
}

// A second that the watcher cannot read is told with the next one, its bins too.
func TestWatchMissesSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		link := &cut{UniversalClient: conn}
		w := fleet.NewWatcher(fleet.NewView(link, 0), nil)
		defer w.Close()
		d := startProcess(t, conn, "dispatcher", "plain")
		pass(6 * time.Second)
		seconds, end := w.Watch("plain")
		var sum, binned int64
		at, told := map[int64]bool{}, make(chan struct{})
		go func() {
			defer close(told)
			for s := range seconds {
				sum += s.Buckets["plain"].Departed
				for _, b := range s.Bins {
					binned += b.Departed
					if at[b.At] {
						t.Errorf("the bin of %d is told twice", b.At)
					}
					at[b.At] = true
				}
			}
		}()
		pass(7 * time.Second) // by now the process knows that somebody looks
		for n := range 80 {
			link.away.Store(n/10%2 == 1) // every other second
			d.counts("plain", 0, 0, 7, 0)
			pass(100 * time.Millisecond)
		}
		link.away.Store(false)
		pass(3 * time.Second)
		end()
		<-told
		if sum != 560 || binned != 560 {
			t.Errorf("told are %d departures of 560, in bins %d", sum, binned)
		}
	})
}
