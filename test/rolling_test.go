//go:build soak

package test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// TestRollingRestart: dispatchers stop and start one after the other, three
// times, under load. Nothing is lost or doubled and the stream hardly dips: each that stops
// gives back the slots it holds, those of 80 ms, which is 6 % of these 4 s.
func TestRollingRestart(t *testing.T) {
	const rate, jobs, rounds = 200, 800, 3
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		s := start(t, redistest.Start(t), plan{rate: rate, dispatchers: 2, hold: 100 * time.Millisecond})
		s.post("rolling", jobs)
		for round := range rounds {
			await(t, 20*time.Second, "deliveries go on", func() bool {
				return s.history.Check().Delivered >= (round+1)*jobs/(rounds+2)
			})
			i := round % len(s.dispatchers)
			s.dispatchers[i].stop(t)
			s.dispatchers[i] = s.restart[i]()
		}
		return s.keptOn(stall, rate, jobs)
	})
}

// keptOn waits for all jobs, and says what is wrong with how they came while dispatchers were replaced.
func (s *system) keptOn(stall *stallWatch, rate, jobs int) string {
	s.t.Helper()
	s.awaitDelivered(20 * time.Second)
	await(s.t, 10*time.Second, "everything is settled", func() bool { return s.unfinished() == 0 })
	r := s.history.Check()
	report(s.t, rate, r)
	switch {
	case r.Err() != nil:
		s.t.Fatal(r.Err())
	case r.Extra > 0:
		return fmt.Sprintf("%d jobs came twice", len(r.Duplicated))
	}
	return cmp.Or(stall.crowded(r.MostIn, rate, spread, time.Second), stall.slow(r.Rate, rate, jobs, .9))
}
