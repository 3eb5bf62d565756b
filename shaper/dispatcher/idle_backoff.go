package dispatcher

import (
	"math/rand/v2"
	"time"

	"github.com/tundish-io/tundish/lua"
)

const (
	idleShare  = 4 // of a horizon is how far an idle loop looks ahead
	maxBackoff = 500 * time.Millisecond
	maxDoubled = 10 // times: the shortest horizon is beyond maxBackoff then
)

// idleBackoff makes an idle loop look for jobs less often: one whose claims bring next to nothing, because the
// dispatchers of other processes take the slots first. With sixteen dispatchers that all look twice a horizon, a
// bucket at 100/s costs more claims than it has departures.
//
// A loop that serves the bucket has claimed at least half of a horizon. An idle loop looks a quarter of a horizon
// ahead, so that it finds a slot only if no other loop serves. It waits longer after each look, up to [maxBackoff], with
// jitter. A wake-up ends the wait: scripts send one to an idle loop when the loop
// that serves may lack workers (see lua/lib/standby.lua).
type idleBackoff struct {
	misses int   // looks in a row that brought next to nothing
	mine   int64 // the first free slot after the last claim that served the bucket, by the clock of Redis; 0: there was none
}

// woken ends the wait: the next look is that of a loop that serves. If it is a miss, the first wait is a horizon again.
func (b *idleBackoff) woken() { b.misses = min(b.misses, 1) }

// serves reports whether the next look is that of a loop that serves. One miss is no reason to step back: the dispatcher that
// took the slots may have no worker left for the slots behind them.
func (b *idleBackoff) serves() bool { return b.misses < 2 }

// ahead is how far the loop looks ahead, of what a loop that serves does.
func (b *idleBackoff) ahead(horizon time.Duration) time.Duration {
	if b.serves() {
		return horizon
	}
	return horizon / idleShare
}

// looked notes a look, and returns the time to the next one; atLeast is what a loop that serves waits.
func (b *idleBackoff) looked(idle bool, horizon, atLeast time.Duration) time.Duration {
	if !idle {
		b.misses = 0
		return atLeast
	}
	b.misses++
	if b.serves() {
		return atLeast
	}
	longest := maxBackoff
	if b.misses < maxDoubled {
		longest = min(horizon<<(b.misses-2), maxBackoff)
	}
	return max(atLeast, longest/2+rand.N(longest/2)) //nolint:gosec // jitter
}

// served is how many slots a claim serves: all from its first job on, also those that pass because no job may go then. freeSlot is the first
// one behind its jobs, 0 where the answer does not tell it.
func (c *claimer) served(jobs []*leased, freeSlot int64) int {
	interval := c.interval()
	if freeSlot == 0 || len(jobs) == 0 || interval <= 0 {
		return 0
	}
	return int((c.clock.local(freeSlot).Sub(jobs[0].slot) + interval/2) / interval) //nolint:mnd // rounds
}

// left reports whether as many slots are free within the horizon as the last claim that served the bucket has left, or all but one. Then no
// other loop has taken slots since. The answer tells of no more slots than the loop wants.
func (b *idleBackoff) left(slots, want, now int64, horizon, interval time.Duration) bool {
	unclaimed := horizon - max(lua.Microseconds(b.mine-now), 0)
	return unclaimed < 0 || interval > 0 && slots >= min(int64(unclaimed/interval), want)
}

// isIdle reports whether others serve the bucket: all slots that the loop looked for are taken, and it serves less than a quarter of
// them. In a fast bucket each claim brings many jobs, and the workers of all may be needed. In a pool, a slot that is taken for one
// bucket may be free for another.
func (c *claimer) isIdle(slots, want int, taken bool, ahead time.Duration) bool {
	interval := c.interval()
	if !taken || slots >= want || c.Settings.Load().Pool != nil || interval*horizonIntervals <= minHorizon {
		return false
	}
	return slots == 0 || idleShare*slots < int(ahead/interval)
}

// horizon is how far ahead the loop looks where it serves. A question comes before a claim for each level.
func (c *claimer) horizon() time.Duration {
	_, longest := c.clock.rtt()
	return horizon(c.interval(), longest, c.Levels())
}
