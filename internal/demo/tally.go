package demo

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// rateWindow is the time over which the live line's rate is taken.
const rateWindow = time.Second

// tally counts for the live line. It is safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	start   time.Time
	in, out int
	away    map[shaper.Reason]int // refused
	earlier []sample              // deliveries at the start and at earlier lines, back to the window's begin
}

type sample struct {
	at  time.Time
	out int
}

func newTally(start time.Time) *tally {
	return &tally{start: start, away: make(map[shaper.Reason]int), earlier: []sample{{at: start}}}
}

func (t *tally) admitted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in++
}

func (t *tally) delivered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out++
}

func (t *tally) refused(reason shaper.Reason) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away[reason]++
}

// refusals returns how many were refused for each reason.
func (t *tally) refusals() map[shaper.Reason]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.away)
}

// line returns the progress in one line.
func (t *tally) line(now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.earlier) > 1 && now.Sub(t.earlier[1].at) >= rateWindow {
		t.earlier = t.earlier[1:]
	}
	rate, refused := 0.0, 0
	for _, n := range t.away {
		refused += n
	}
	if now.After(t.earlier[0].at) {
		rate = float64(t.out-t.earlier[0].out) / now.Sub(t.earlier[0].at).Seconds()
	}
	t.earlier = append(t.earlier, sample{now, t.out})
	return fmt.Sprintf("%4.1fs  admitted %d  refused %d  waiting %d  delivered %d, %.0f/s",
		now.Sub(t.start).Seconds(), t.in, refused, max(t.in-t.out, 0), t.out, rate)
}
