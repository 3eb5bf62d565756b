//go:build soak

package soak

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestStallsDoNotBunch: all dispatchers stand still again and again, as under a
// CPU quota. The permits whose slots went by meanwhile do not leave at once, and
// the time that is left is used.
func TestStallsDoNotBunch(t *testing.T) {
	const stops, stopped, between = 6, 240 * time.Millisecond, 1200 * time.Millisecond
	for _, rate := range []int{300, 80} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
				jobs := rate * int((stops*(between+stopped)+time.Second)/time.Second)
				s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2})
				s.Post("stall", jobs)
				harness.Await(t, 10*time.Second, "deliveries go on", func() bool { return s.History.Check().Delivered >= rate/4 })
				var still time.Duration
				for range stops {
					<-time.After(between) // real processes stand still in real time
					began := time.Now()
					for _, d := range s.Dispatchers {
						d.Signal(t, syscall.SIGSTOP)
					}
					<-time.After(stopped)
					for _, d := range s.Dispatchers {
						d.Signal(t, syscall.SIGCONT)
					}
					still += time.Since(began)
				}
				r := s.AwaitDelivered(40 * time.Second)
				harness.Report(t, rate, r)
				if r.Err() != nil {
					t.Fatal(r.Err())
				}
				if r.Extra > 0 {
					return fmt.Sprintf("%d jobs came twice: %v", r.Extra, r.Duplicated)
				}
				if got, want := r.MostIn(time.Second), rate*105/100; got > want {
					return fmt.Sprintf("%d in a second, want at most %d", got, want)
				}
				if got, want := r.MostIn(100*time.Millisecond), rate*15/100; got > want {
					return fmt.Sprintf("%d in 100 ms, want at most %d", got, want)
				}
				took := time.Duration(float64(r.Delivered-1) / r.Rate * float64(time.Second))
				share := float64(r.Delivered-1) / (took - still).Seconds() / float64(rate)
				t.Logf("stopped for %s of %s: %.1f %% of what the rest allows", still, took, 100*share)
				if share < .95*(took-still).Seconds()/(took-still+stall.Cost()).Seconds() {
					return fmt.Sprintf("%.1f %% of what the running time allows", 100*share)
				}
				return ""
			})
		})
	}
}
