//go:build soak

package soak

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestRollingRestart: dispatchers stop and start one after the other, three
// times, under load. Nothing is lost or doubled and the stream hardly dips: each that stops
// gives back the slots it holds, those of 80 ms, which is 6 % of these 4 s.
func TestRollingRestart(t *testing.T) {
	const rate, jobs, rounds = 200, 800, 3
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2, Hold: 100 * time.Millisecond})
		s.Post("rolling", jobs)
		for round := range rounds {
			harness.Await(t, 20*time.Second, "deliveries go on", func() bool {
				return s.History.Check().Delivered >= (round+1)*jobs/(rounds+2)
			})
			i := round % len(s.Dispatchers)
			s.Dispatchers[i].Stop(t)
			s.Dispatchers[i] = s.Restart[i]()
		}
		return s.keptOn(stall, rate, jobs)
	})
}

// keptOn waits for all jobs, and says what is wrong with how they came while dispatchers were replaced.
func (s *system) keptOn(stall *harness.StallWatch, rate, jobs int) string {
	s.T.Helper()
	s.AwaitDelivered(20 * time.Second)
	harness.Await(s.T, 10*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
	r := s.History.Check()
	harness.Report(s.T, rate, r)
	switch {
	case r.Err() != nil:
		s.T.Fatal(r.Err())
	case r.Extra > 0:
		return fmt.Sprintf("%d jobs came twice", len(r.Duplicated))
	}
	return cmp.Or(stall.Crowded(r.MostIn, rate, harness.Spread, time.Second), stall.Slow(r.Rate, rate, jobs, .9))
}
