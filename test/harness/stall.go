package harness

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Dipped returns a fault if some window has less than 98 % of its due departures, otherwise "". A window may be short by as long as the machine stood
// still.
func (w *StallWatch) Dipped(what string, s Slots, rate int, window time.Duration) string {
	if got, want := s.Fewest(window), .98*float64(rate)*(window-w.Cost()).Seconds(); float64(got) < want {
		return fmt.Sprintf("%d %s in some %s, want at least %.0f", got, what, window, want)
	}
	return ""
}

// Spread is how far apart the lateness of two departures may lie where
// connections are killed, clocks stepped and processes stopped all the time.
// It is less than a horizon of claims at the rate of these tests (80 ms), so
// that a horizon that is handed out twice does not fit in.
const Spread = 50 * time.Millisecond

// Steady is how far apart the lateness of two departures may lie when nothing happens but deliveries.
const Steady = 10 * time.Millisecond

// MostIn returns the most that a receiver may see in any window: P2 of the promises, rate · (window + spread) + burst, for a burst of 1.
func MostIn(window time.Duration, rate int, spread time.Duration) int {
	return int(float64(rate)*(window+spread).Seconds()) + 1
}

// Quietly runs a measurement, and runs it again, up to three times, when a time that it measured was out of bounds: these tests share CPUs with other
// programs. What no machine can be blamed for, such as a lost job, the measurement itself fails on, at once.
//
// What the machine itself was late by meanwhile, the stall, is allowed to what is measured at the receiver. Slots, which are given by Redis and know no
// lateness, are held to their bounds without it by the tests of lua and shaper.
func Quietly(t *testing.T, measure func(t *testing.T, stall *StallWatch) (fault string)) {
	t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		watch := WatchStalls()
		fault := ""
		t.Run(fmt.Sprint("try", try), func(t *testing.T) { fault = measure(t, watch) })
		worst := watch.Stop()
		if fault == "" || t.Failed() {
			return
		}
		fault = fmt.Sprintf("%s (worst stall of the machine meanwhile: %s)", fault, worst)
		if try == tries {
			t.Fatal(fault)
		}
		t.Logf("again: %s", fault)
	}
}

// StallWatch measures how late threads that sleep for a few milliseconds wake up: as many threads as there are CPUs, because a single one finds the free
// CPU.
type StallWatch struct {
	end          chan struct{}
	wg           sync.WaitGroup
	worst, total atomic.Int64
}

// grave is a stall that may have a permit given back, so that its job gets a later slot: it costs the stream as much
// time as it lasts. A delivery may wake 12 ms late, and some of that the dispatchers need themselves.
const grave = 8 * time.Millisecond

// WatchStalls begins to watch for stalls of the machine.
func WatchStalls() *StallWatch {
	w := &StallWatch{end: make(chan struct{})}
	for range runtime.GOMAXPROCS(0) {
		w.wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			const every = 2 * time.Millisecond
			total := time.Duration(0)
			for last := time.Now(); ; {
				select {
				case <-w.end:
					return
				case <-time.After(every):
				}
				now := time.Now()
				late := now.Sub(last) - every
				if late > grave {
					total += late
					raise(&w.total, total)
				}
				raise(&w.worst, late)
				last = now
			}
		})
	}
	return w
}

// raise raises a value to at least d.
func raise(value *atomic.Int64, d time.Duration) {
	for {
		old := value.Load()
		if int64(d) <= old || value.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// SoFar is the worst stall until now.
func (w *StallWatch) SoFar() time.Duration { return time.Duration(w.worst.Load()) }

// Cost returns how much later the machine may have made the last departure of a stream.
func (w *StallWatch) Cost() time.Duration { return max(w.SoFar(), time.Duration(w.total.Load())) }

// Stop ends the watch and returns the longest stall.
func (w *StallWatch) Stop() time.Duration {
	close(w.end)
	w.wg.Wait()
	return w.SoFar()
}

// Crowded returns a fault if some window has more departures than the rate, the spread and the stall explain, otherwise "".
func (w *StallWatch) Crowded(most func(time.Duration) int, rate int, spread time.Duration, windows ...time.Duration) string {
	for _, window := range windows {
		if got, want := most(window), MostIn(window, rate, spread+w.SoFar()); got > want {
			return fmt.Sprintf("%d in %s, want at most %d", got, window, want)
		}
	}
	return ""
}

// Slow returns a fault if a rate is below a share of the due rate, otherwise "". The last departure may be as late as the machine was, or as all grave
// stalls took.
func (w *StallWatch) Slow(seen float64, rate, jobs int, share float64) string {
	due := float64(jobs) / float64(rate)
	if want := share * float64(jobs) / (due + max(w.SoFar(), time.Duration(w.total.Load())).Seconds()); seen < want {
		return fmt.Sprintf("%.1f/s, want at least %.1f/s: %.0f %% of %d/s", seen, want, 100*share, rate)
	}
	return ""
}
