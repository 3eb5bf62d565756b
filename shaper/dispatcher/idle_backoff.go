package dispatcher

import (
	"math/rand/v2"
	"time"

	"github.com/tundish-io/tundish/lua"
)

const (
	idleShare  = 4 // an idle loop looks ahead by a horizon divided by this
	maxBackoff = 500 * time.Millisecond
	maxDoubled = 10 // doublings: the shortest horizon exceeds maxBackoff then
)

// idleBackoff makes a loop poll less often when its claims bring next to nothing, because other dispatchers take the slots first. With sixteen
// dispatchers that each claim twice per horizon, a bucket at 100/s would have more claims than departures.
//
// A loop serves the bucket while its claims get at least a quarter of a horizon's slots. An idle loop looks a quarter of a horizon ahead, so it finds a
// slot only if no other loop serves. It waits longer after each claim, up to [maxBackoff], with jitter. A wake-up ends the wait: scripts wake an idle
// loop when the serving loop may lack workers (see lua/lib/standby.lua).
type idleBackoff struct {
	misses int   // claims in a row that brought next to nothing
	mine   int64 // the first free slot after the last claim that served the bucket, by the clock of Redis; 0: there was none
}

// woken ends the wait: the next claim is one of a serving loop. If it is a miss, the first wait is a horizon again.
func (b *idleBackoff) woken() { b.misses = min(b.misses, 1) }

// serves reports whether the next claim is one of a serving loop. A single miss is no reason to back off: the dispatcher that took the slots may have
// no worker left for later ones.
func (b *idleBackoff) serves() bool { return b.misses < 2 }

// ahead returns how far ahead the loop looks; horizon is the value of a serving loop.
func (b *idleBackoff) ahead(horizon time.Duration) time.Duration {
	if b.serves() {
		return horizon
	}
	return horizon / idleShare
}

// looked records a claim, and returns the wait until the next one. atLeast is the wait of a serving loop.
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

// served returns how many slots a claim serves: all from its first job on, including slots that no job may use. freeSlot is the first slot after its
// jobs, 0 if the reply has none.
func (c *claimer) served(jobs []*leased, freeSlot int64) int {
	interval := c.interval()
	if freeSlot == 0 || len(jobs) == 0 || interval <= 0 {
		return 0
	}
	return int((c.clock.local(freeSlot).Sub(jobs[0].slot) + interval/2) / interval) //nolint:mnd // rounds
}

// left reports whether all slots (or all but one) that the last serving claim left within the horizon are still free: then no other loop has taken
// any. A reply reports no more slots than the loop wants.
func (b *idleBackoff) left(slots, want, now int64, horizon, interval time.Duration) bool {
	unclaimed := horizon - max(lua.Microseconds(b.mine-now), 0)
	return unclaimed < 0 || interval > 0 && slots >= min(int64(unclaimed/interval), want)
}

// isIdle reports whether other loops serve the bucket: all slots in the horizon are taken, and this loop got less than a quarter of them. It is never
// true in a fast bucket, whose claims bring many jobs and may need all workers. Nor is it in a pool, where a slot that is taken for one bucket may be
// free for another.
func (c *claimer) isIdle(slots, want int, taken bool, ahead time.Duration) bool {
	interval := c.interval()
	if !taken || slots >= want || c.Settings.Load().Pool != nil || interval*horizonIntervals <= minHorizon {
		return false
	}
	return slots == 0 || idleShare*slots < int(ahead/interval)
}

// horizon returns how far ahead a serving loop looks. Each level of the bucket adds one call before a claim.
func (c *claimer) horizon() time.Duration {
	_, longest := c.clock.rtt()
	return horizon(c.interval(), longest, c.Levels())
}
