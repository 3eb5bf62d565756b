package shaper

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tundish-io/tundish/lua"
)

const (
	standbyShare = 4 // of a horizon is what one that stands by looks ahead
	fewClaimed   = 2 // less is not worth a claim
	fewStandbys  = 3 // so many cost little if they go on

	sayEvery   = patrolInterval
	silentSays = 3 // intervals after which one that is silent stands by no more
)

// standby is how a drain steps back whose claims bring next to nothing, because
// those of other processes are faster. If sixteen of them all looked each time
// half of a horizon is left, a bucket at 100/s would cost more claims than it has
// departures.
//
// Whoever serves the bucket has claimed at least half of a horizon. One that
// stands by looks a quarter of one ahead, so that it finds a slot only if nobody
// serves, and then takes over. It looks when the slots that it knows to be claimed
// run out, or up to a quarter of a horizon later for each of those that stand by:
// the first of them looks in time on average, as a lone one always does. So a process
// that dies costs its slots and hardly more.
type standby struct {
	is    bool      // the last claim was not worth it
	count int64     // of those that stand by, this one included; 0 not known
	said  time.Time // when it was counted
	free  int64     // the first slot that nobody had after the last claim; 0 not known
}

// crowded reports whether a bucket is one that need not be served by all, where all
// slots within the horizon are taken. A fast bucket has enough for all, and needs
// their workers; and one that is so slow that each claim is for one slot has nobody
// who serves.
func crowded(interval, ahead time.Duration) bool {
	return interval*horizonIntervals > minHorizon && interval*fewClaimed*standbyShare <= ahead
}

// steps reports whether the drain leaves the bucket to others.
func (s *standby) steps() bool { return s.is && s.count > fewStandbys }

// horizon is how far the drain looks ahead, of what one looks that serves.
func (s *standby) horizon(whole time.Duration) time.Duration {
	if s.steps() {
		return whole / standbyShare
	}
	return whole
}

// patience is how long after the last moment for a claim one that stands by makes
// it; mostly before that.
func (s *standby) patience(whole time.Duration) time.Duration {
	most := min(whole/standbyShare*time.Duration(s.count), patrolInterval)
	return rand.N(most) - whole/standbyShare //nolint:gosec // spread
}

// brought is what a claim brought.
type brought struct {
	jobs, want int
	taken      bool  // all slots within its horizon are
	from, free int64 // the first slot that it could have had, and the first that nobody has; 0 not known
}

// woken says that the drain is needed: it looks as one that serves.
func (s *standby) woken() { s.is, s.free = false, 0 }

// yields reports whether the drain leaves the bucket to those that it has shared the slots with since its last claim:
// it stays with the probability of its share. So of several that serve mostly one stays, and one that is alone does.
func (s *standby) yields(b brought, interval time.Duration) bool {
	if s.free == 0 || b.free == 0 {
		return false
	}
	slots := (b.free - max(s.free, b.from)) / interval.Microseconds()
	return slots > int64(b.jobs) && rand.Int64N(slots) >= int64(b.jobs) //nolint:gosec // spread
}

// horizon is how far ahead the drain looks where it serves.
func (d *drain) horizon() time.Duration {
	_, longest := d.clock.rtt()
	return horizon(d.interval(), longest, d.questions())
}

// mayStepBack reports whether the drain steps back where it finds no slot. In a pool, one that is free for a bucket need
// not be free for another.
func (d *drain) mayStepBack() bool {
	return d.settings.Load().Pool == nil && crowded(d.interval(), d.horizon())
}

// standsBy reports whether the drain leaves the bucket to others, after a claim. If that was not worth it, it says so
// to them, at times, and counts them. Where that fails it goes on as ever.
//
// In a bucket with flows a claim costs two or three calls, so that one that serves is to be alone. It may be: one that stands
// by is woken when those that serve have few workers left (see reserve.lua). Without flows nobody is woken, and only
// those step back that have nothing else under way.
func (d *drain) standsBy(ctx context.Context, b brought) bool {
	s, few := &d.standby, b.jobs < fewClaimed
	stood := s.steps()
	s.is = b.taken && d.mayStepBack()
	if d.hasFlows() {
		s.is = s.is && b.jobs < b.want && (few || !stood && s.yields(b, d.interval()))
	} else {
		s.is = s.is && few && d.underWay() == b.jobs
	}
	s.free = b.free
	if s.is && time.Since(s.said) >= sayEvery {
		s.said, s.count = time.Now(), 0
		ctx, cancel := context.WithTimeout(ctx, d.store.timeout)
		defer cancel()
		silence := (silentSays * sayEvery).Microseconds()
		if n, err := lua.Instances.Numbers(ctx, d.store.redis, d.keys.forInstances(), d.dispatcher, silence); err == nil && len(n) == 1 {
			s.count = n[0]
		}
	}
	return s.steps()
}

// untilLook is how long one that stands by waits: until the next slot, less what asking for it takes, or a little longer.
func (d *drain) untilLook(next int64, asking time.Duration) time.Duration {
	return min(time.Until(d.clock.local(next))-asking+d.standby.patience(d.horizon()), idleClaim)
}
