package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/tundish-io/tundish/lua"
)

// How far ahead slots are claimed. The scripts know the upper limit too.
const (
	minHorizon       = 20 * time.Millisecond
	maxHorizon       = 200 * time.Millisecond
	horizonIntervals = 16
	moreIntervals    = 4 // for each call that precedes a claim
	horizonRTTs      = 4
)

// stepSlack is how far the clock of Redis and our monotonic one may drift
// apart between two calls before it counts as a step.
const stepSlack = 50 * time.Millisecond

// unexpectedLate is how much longer than the longest recent round trip a script may take to run. A script that runs later treats its TIME as after a
// step.
const unexpectedLate = maxHorizon

// othersReport is how long a new dispatcher waits for the others to find a step of the clock of Redis and report it. Meanwhile they pause for a
// horizon.
const othersReport = time.Second

// dialling is how many of the first calls may each include dialling a connection. Dialling happens before the call runs, so it would shift the middle
// of the bounds by half of its duration.
const dialling = 2

// rttSamples is how many round trips are kept.
const rttSamples = 8

// farthest bounds how far ahead local converts times. No loop waits longer than idleClaim.
const farthest = 100 * 365 * 24 * time.Hour

// maxDrift is how far two clocks that no step corrects drift apart in a second.
const maxDrift = 500 * time.Microsecond

// clock relates the clock of Redis to this process's monotonic one.
//
// A call that started at s, ended at e and saw Redis time t shows that the difference between the clocks lies in [t-e, t-s], however slow the call
// was. The intersection over several calls is at least as exact as the fastest one, so a slow call neither hurries nor delays slots. If two intervals
// do not touch, the clock of Redis stepped. It is safe for concurrent use.
//
// The dispatcher reports a step forwards to the next script, which lowers the offset of the engine's clock once per step (see lua/lib/pacer.lua). The
// script that showed the step decides nothing: each call says until when its dispatcher expects the time to be, and a script that runs later hands out
// nothing. A step is not found while no dispatcher runs, or while all others have no free worker.
type clock struct {
	mu       sync.Mutex
	base     time.Time     // origin of our monotonic clock
	low      time.Duration // bounds of the difference: Redis time less ours
	high     time.Duration
	seen     time.Time // when the bounds were last updated
	known    bool
	jump     time.Duration // forwards, since the last takeJump
	jumped   time.Time     // when it last stepped forwards
	stepped  time.Time     // when a step was last seen, either way
	rtts     [rttSamples]time.Duration
	rttCount int
}

func newClock() *clock { return &clock{base: time.Now()} }

// observe narrows the bounds by one call. It returns by how much the clock of Redis stepped at least: positive forwards, negative backwards, 0 if it
// did not.
func (c *clock) observe(start, end time.Time, redisNow int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rtts[c.rttCount%rttSamples] = end.Sub(start)
	c.rttCount++
	at := lua.Microseconds(redisNow)
	low, high := at-end.Sub(c.base), at-start.Sub(c.base)
	if !c.known {
		c.low, c.high, c.seen, c.known = low, high, end, true
		return 0
	}
	if start.Before(c.stepped) { // concurrent calls: this reply may be from before the step, and would look like a step back
		return 0
	}
	drift := time.Duration(max(end.Sub(c.seen), 0).Seconds() * float64(maxDrift))
	c.low, c.high, c.seen = c.low-drift, c.high+drift, end
	var step time.Duration
	switch {
	case low > c.high+stepSlack:
		step = low - c.high
	case high < c.low-stepSlack:
		step = high - c.low
	case max(low, c.low) <= min(high, c.high):
		c.low, c.high = max(low, c.low), min(high, c.high)
		return 0
	}
	most := high - c.low
	c.low, c.high, c.stepped = low, high, end
	if step > 0 {
		c.jump, c.jumped = c.jump+most, end
	}
	return step
}

// takeJump returns by how much at most the clock of Redis has stepped forwards since the last takeJump, 0 if it did not.
func (c *clock) takeJump() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	jump := c.jump
	c.jump = 0
	return jump
}

// jumpedSince reports whether the clock of Redis stepped forwards after then.
func (c *clock) jumpedSince(then time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jumped.After(then)
}

// local converts a Redis time in Unix microseconds to our clock. It takes the middle of the bounds: the error is at most half of the fastest round
// trip, and zero if that call took equally long in both directions. So a far dispatcher is not ahead of a near one, and a slot half a round trip
// after the script ran is not late when the reply arrives. Call observe first. Times beyond farthest are cut to farthest: stored jobs may have any
// date, and a Duration ends after 292 years.
func (c *clock) local(redisTime int64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	middle := c.low + (c.high-c.low)/2
	from := c.base.Add(-middle % time.Microsecond)
	ahead := redisTime - (middle - middle%time.Microsecond).Microseconds()
	return from.Add(min(lua.Microseconds(ahead), farthest))
}

// localBounds returns the earliest and the latest instant on our clock that a Redis time can be. Call observe first.
func (c *clock) localBounds(redisTime int64) (earliest, latest time.Time) {
	middle := c.local(redisTime)
	c.mu.Lock()
	defer c.mu.Unlock()
	half := (c.high - c.low + 1) / 2 //nolint:mnd // half of the bounds
	return middle.Add(-half), middle.Add(half)
}

// isMeasured reports whether enough calls were observed to convert slots.
func (c *clock) isMeasured() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rttCount >= dialling
}

// redis converts an instant on our clock to Redis time. Call observe first.
func (c *clock) redis(at time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.UnixMicro((c.low + (c.high-c.low)/2 + at.Sub(c.base)).Microseconds())
}

// now returns the current Redis time, or the time of this process while the former is unknown.
func (c *clock) now() time.Time {
	now := time.Now()
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	if !known {
		return now
	}
	return c.redis(now)
}

// skew returns by how much the clock of Redis is ahead of this machine's at least, negative if it is behind, 0 if unknown.
func (c *clock) skew(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	local := time.Duration(now.UnixMicro()) * time.Microsecond
	low, high := c.low+now.Sub(c.base)-local, c.high+now.Sub(c.base)-local
	switch {
	case low > 0:
		return low
	case high < 0:
		return high
	default:
		return 0
	}
}

// latest returns the latest time, in Unix microseconds, that Redis can have at the instant now if its clock did not step; 0 if unknown.
func (c *clock) latest(now time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	return (c.high + now.Sub(c.base)).Microseconds()
}

// expected returns the latest time, in Unix microseconds, that a script sent at the instant now may see unless the clock of Redis stepped. It returns
// 0 if that is unknown, and 1 (no time is expected) while a step is not reported yet, see takeJump.
func (c *clock) expected(now time.Time) int64 {
	latest := c.latest(now)
	_, longest := c.rtt()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case latest == 0:
		return 0
	case c.jump > 0:
		return 1
	default:
		return latest + (longest + unexpectedLate).Microseconds()
	}
}

// rtt returns the shortest and the longest recent round trip.
func (c *clock) rtt() (shortest, longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(c.rttCount, rttSamples)
	for i := range n {
		if i == 0 || c.rtts[i] < shortest {
			shortest = c.rtts[i]
		}
		longest = max(longest, c.rtts[i])
	}
	return shortest, longest
}

// horizon returns how far ahead slots are claimed: the largest of 20 ms, 16 intervals and 4 round trips, at most 200 ms. So a slow network costs no
// slots, and a slow bucket few calls. In a bucket with flows other calls precede each claim, so a claim covers more intervals.
func horizon(interval, rtt time.Duration, questions int) time.Duration {
	intervals := time.Duration(horizonIntervals + moreIntervals*questions)
	return min(max(minHorizon, intervals*interval, horizonRTTs*rtt), maxHorizon)
}

// expected returns the latest TIME that a script sent now may see, as its argument: see bucket_pacer.ask_again in lua/lib/bucket_pacer.lua.
func (c *claimer) expected() int64 {
	if c.measuresClock {
		return -1
	}
	return c.clock.expected(time.Now())
}

// pauseForStep stops claims for one horizon, in which permits from before a step forwards may still depart, and returns that time. The next claim
// reports the step to the script, so the step does not refill the burst.
func (c *claimer) pauseForStep(ctx context.Context, step time.Duration) time.Duration {
	c.store.Metrics.CountStep()
	c.log.WarnContext(ctx, "the clock of Redis stepped forwards: pausing for one horizon", "step", step)
	c.pause = time.Now().Add(maxHorizon)
	return maxHorizon
}

// sleep waits, and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
