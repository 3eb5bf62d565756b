package test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/test/harness"
)

// TestClockSteps is P2 where the clock of Redis is set under load, by seconds and by an hour, forwards and back. By
// the clock of the machine no more slots are given than those that the rate allows, and with each step those of one
// horizon, which were given already and are void where it stepped forwards; nothing is lost, and no
// lease counts as run out.
func TestClockSteps(t *testing.T) {
	harness.BesideOthers(t)
	const rate, jobs, hold, horizon = 200, 1000, 600 * time.Millisecond, 80 * time.Millisecond
	steps := []struct {
		delivered int // when it is made
		offset    time.Duration
	}{
		// A patrol, every 2 s, comes after a step forwards.
		{50, 5 * time.Second}, {500, 0}, {600, time.Hour}, {800, 0},
	}
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		server, clock := harness.StartMovable(t)
		watched := harness.Monitor(t, server)
		s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2, Lease: 3 * time.Second, Hold: hold})
		s.Post("step", jobs)
		for _, step := range steps {
			harness.Await(t, 20*time.Second, fmt.Sprint(step.delivered, " jobs have arrived"), func() bool {
				return s.History.Check().Delivered >= step.delivered
			})
			clock.Set(step.offset)
		}
		r := s.AwaitDelivered(30 * time.Second)
		harness.Await(t, 20*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
		var real harness.Slots
		grants, _ := watched.All()
		for _, g := range grants {
			offset, nearest := int64(0), int64(math.MaxInt64)
			for _, step := range steps {
				far := g.At - g.Read - step.offset.Microseconds()
				if far = max(far, -far); far < nearest {
					offset, nearest = step.offset.Microseconds(), far
				}
			}
			real = append(real, g.Slot-offset)
		}
		slices.Sort(real)
		early := real.Early(rate)
		harness.Report(t, rate, r)
		t.Logf("%d slots, those of the fullest window are %s ahead of the rate", len(real), early)
		if r.Err() != nil || r.Extra > 0 {
			t.Errorf("%v; came twice: %v", r.Err(), r.Duplicated)
		}
		if most := time.Duration(len(steps))*horizon + harness.Spread; early > most {
			t.Errorf("the slots of some window are %s ahead of the rate, want at most %s", early, most)
		}
		return stall.Crowded(r.MostIn, rate, harness.Spread, time.Second)
	})
}
