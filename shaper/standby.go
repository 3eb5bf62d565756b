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
}

// crowded reports whether a claim brought so little, although all slots within
// the horizon are taken, that it was not worth it. A fast bucket has enough for
// all, and needs their workers; and one that is so slow that each claim is for one
// slot has nobody who serves.
func crowded(jobs int, interval, ahead time.Duration) bool {
	return jobs < fewClaimed && interval*horizonIntervals > minHorizon && interval*fewClaimed*standbyShare <= ahead
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

// standBy reports whether the drain leaves the bucket to others. If its last claim
// was not worth it, it says so to them, at times, and counts them. Where that fails
// it goes on as ever.
func (d *drain) standBy(ctx context.Context) bool {
	s := &d.standby
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
