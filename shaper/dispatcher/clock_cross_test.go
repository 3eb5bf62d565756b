package dispatcher

import (
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
)

// A call that began before a step was seen may have been answered before it: its answer, which comes late, is no step the other way.
func TestAnswersThatCrossAStep(t *testing.T) {
	t.Parallel()
	c := newClock()
	at := func(ms int) time.Time { return c.base.Add(time.Duration(ms) * time.Millisecond) }
	redis := func(ms int, step time.Duration) int64 {
		return (time.Duration(ms)*time.Millisecond + time.Hour + step).Microseconds()
	}
	c.observe(at(0), at(1), redis(0, 0))
	if step := c.observe(at(11), at(12), redis(11, -time.Minute)); step >= 0 {
		t.Fatalf("a step back was seen as %s", step)
	}
	// This call began before, was answered before the step, and was slow.
	if step := c.observe(at(5), at(14), redis(6, 0)); step != 0 || c.takeJump() != 0 {
		t.Errorf("an answer from before the step was taken for a step of %s", step)
	}
	must.Equal(t, c.observe(at(20), at(21), redis(20, -time.Minute)), 0, "the next answer was taken for a step of")
}
