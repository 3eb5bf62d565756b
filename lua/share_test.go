package lua_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// sharer is a bucket of a pool as its dispatchers claim from it: when told to, which is half of
// their horizon before the next slot, or later by as much as they are late.
type sharer struct {
	*rig
	horizon, lead int64
	late          func() int64
	at            int64 // of the next claim
	claims        int
	slots         []int64
	last          []lease
}

func (s *sharer) turn(t tb, want int64) {
	c := s.claim(ask{horizon: s.horizon, lead: s.lead, want: want})
	s.claims++
	for _, job := range c.jobs {
		s.slots = append(s.slots, job.slot)
	}
	s.last = append(s.last, c.jobs...)
	wait := int64(30 * second)
	if c.next > 0 {
		wait = max(c.next-s.horizon/2-c.now, 2000)
	}
	s.at = c.now + wait + s.late()
	if c.next == -1 {
		t.Fatalf("%s is held: %+v", s.name, c)
	}
}

// share lets buckets claim for so long, and tells how many slots each got in the last part of it.
func share(t tb, sharers []*sharer, length int64, want int64) {
	began := sharers[0].now()
	for _, s := range sharers {
		s.at = max(s.at, began)
	}
	for {
		next := sharers[0]
		for _, s := range sharers[1:] {
			if s.at < next.at {
				next = s
			}
		}
		if next.at > began+length {
			return
		}
		next.pass(max(next.at-next.now(), 0))
		next.turn(t, want)
	}
}

func within(slots []int64, from, to int64) (n int64) {
	for _, slot := range slots {
		if slot >= from && slot < to {
			n++
		}
	}
	return n
}

func onTime() int64 { return 0 }

// sharing makes busy buckets of these weights in one pool.
func sharing(t tb, base *rig, p poolSettings, own settings, weights ...int64) []*sharer {
	all := make([]*sharer, len(weights))
	pool := fmt.Sprint("pool", nextClaim())
	for i, weight := range weights {
		r := base.pooled(t, pool, fmt.Sprint(pool, ".", i), weight, own)
		if i == 0 {
			r.configurePool(p)
		}
		r.putMany(int(own.capacity))
		all[i] = &sharer{rig: r, horizon: 40_000, late: onTime}
	}
	return all
}

// Two busy buckets share by weight, whatever their horizons and however late their claims are, as long as these
// come before the slots have passed; and no slot is lost.
func TestShareByWeight(t *testing.T) {
	t.Parallel()
	onMini(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			const length = 10 * second
			rate := rapid.SampledFrom([]int64{20, 100, 300}).Draw(rt, "rate")
			all := sharing(rt, base, poolSettings{rateCount: rate, burst: rapid.SampledFrom([]int64{1, 1, 5}).Draw(rt, "burst")},
				settings{rateCount: 100_000, capacity: 4000, inFlight: 100_000}, 3, 1)
			for i, s := range all {
				s.horizon = rapid.SampledFrom([]int64{20_000, 50_000, 200_000}).Draw(rt, "horizon")
				s.lead = rapid.Int64Range(0, 2000).Draw(rt, "lead")
				late := rapid.Int64Range(0, 4000).Draw(rt, "late")
				s.late = func() int64 { return rapid.Int64Range(0, late).Draw(rt, fmt.Sprint("late", i)) }
			}
			began := all[0].now()
			share(rt, all, length, 100)
			from, to := began+second/2, began+length-second/2
			a, b := within(all[0].slots, from, to), within(all[1].slots, from, to)
			if share := float64(a) / float64(a+b); share < 0.70 || share > 0.80 {
				rt.Fatalf("%d and %d: %.1f %%, want 75 %%, in %d and %d claims", a, b, 100*share, all[0].claims, all[1].claims)
			}
			if want := rate * (to - from) / second; a+b < want*95/100 || a+b > want+5 {
				rt.Fatalf("%d slots, want %d", a+b, want)
			}
			for _, s := range all {
				if most := 6*length/s.horizon + 2*length*rate/second; int64(s.claims) > most {
					rt.Fatalf("%d claims, want at most %d", s.claims, most)
				}
			}
		})
	})
}
