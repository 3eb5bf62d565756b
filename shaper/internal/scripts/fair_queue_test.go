package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
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
	length := max(atLength(10*second, 2), 5*second)
	for n, c := range []struct{ rate, burst, horizonA, horizonB, lead, late int64 }{
		{100, 1, 50_000, 50_000, 0, 0},
		{100, 1, 50_000, 50_000, 2000, 4000},
		{100, 5, 20_000, 200_000, 1000, 4000},
		{100, 1, 200_000, 20_000, 1000, 4000},
		{20, 1, 200_000, 20_000, 0, 3000},
		{20, 1, 20_000, 200_000, 2000, 1000},
		{300, 1, 20_000, 20_000, 1000, 2000},
		{300, 5, 200_000, 50_000, 0, 4000},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			onReal(t, func(t *testing.T, base *rig) {
				chance := rand.New(rand.NewPCG(uint64(n), 1))
				all := sharing(t, base, poolSettings{rateCount: c.rate, burst: c.burst},
					settings{rateCount: 100_000, capacity: 10 * c.rate, inFlight: 100_000}, 3, 1)
				for i, s := range all {
					s.horizon, s.lead = []int64{c.horizonA, c.horizonB}[i], c.lead
					s.late = func() int64 { return chance.Int64N(c.late + 1) }
				}
				began := all[0].now()
				share(t, all, length, 100)
				from, to := began+second/2, began+length-second/2
				a, b := within(all[0].slots, from, to), within(all[1].slots, from, to)
				if share := float64(a) / float64(a+b); share < 0.70 || share > 0.80 {
					t.Errorf("%d and %d: %.1f %%, want 75 %%, in %d and %d claims", a, b, 100*share, all[0].claims, all[1].claims)
				}
				if want := c.rate * (to - from) / second; a+b < want*95/100 || a+b > want+5 {
					t.Errorf("%d slots, want %d", a+b, want)
				}
				for _, s := range all {
					if most := 6*length/s.horizon + 2*length*c.rate/second; int64(s.claims) > most {
						t.Errorf("%d claims, want at most %d", s.claims, most)
					}
				}
			})
		})
	}
}

// One that is alone has all of it, also when the other has just gone away and was owed slots.
func TestShareOfOneAlone(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		for _, horizons := range [][2]int64{{20_000, 20_000}, {20_000, 200_000}, {200_000, 20_000}, {200_000, 200_000}} {
			const rate = 200
			all := sharing(t, base, poolSettings{rateCount: rate}, settings{rateCount: 100_000, capacity: 1000, inFlight: 100_000}, 1, 9)
			all[0].horizon, all[1].horizon = horizons[0], horizons[1]
			share(t, all, second, 100)
			began := all[0].now() // the second is gone, and is known to have work for a while
			share(t, all[:1], 3*second, 100)
			from, to := began+250_000, began+3*second-100_000
			if got, want := within(all[0].slots, from, to), rate*(to-from)/second; got < want*97/100 {
				t.Errorf("%v: %d slots of one alone, want %d", horizons, got, want)
			}
			from = began + second
			if got, want := within(all[0].slots, from, to), rate*(to-from)/second; got < want-1 {
				t.Errorf("%v: %d slots once the other is forgotten, want %d", horizons, got, want)
			}
		}
	})
}

// One that was idle has no credit for it, and one that had all of it alone no debt.
func TestShareAfterIdling(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		all := sharing(t, base, poolSettings{rateCount: 100}, settings{rateCount: 100_000, capacity: 3000, inFlight: 100_000}, 1, 1)
		share(t, all[:1], 10*second, 100)
		began := all[0].now()
		share(t, all, 2*second, 100)
		a, b := within(all[0].slots, began+second/2, began+2*second), within(all[1].slots, began+second/2, began+2*second)
		if a+b < 149 || a < b-8 || b < a-8 {
			t.Errorf("%d and %d after the second has slept", a, b)
		}
	})
}

// One whose own rate is less than its share has that, at an even pace, and the others have the rest.
func TestShareWithASlowOne(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		for _, horizon := range []int64{20_000, 200_000} {
			all := sharing(t, base, poolSettings{rateCount: 200}, settings{rateCount: 100_000, capacity: 1000, inFlight: 100_000}, 1, 1, 1)
			slow := all[1]
			slow.configure(settings{rateCount: 10, capacity: 1000, inFlight: 100_000, revision: 1})
			slow.ok(slow.c.HSet(slow.ctx, slow.key("settings"), "weight", 1).Err())
			for _, s := range all {
				s.horizon = horizon
			}
			began := all[0].now()
			share(t, all, 6*second, 100)
			from, to := began+second, began+6*second-200_000
			a, b, c := within(all[0].slots, from, to), within(slow.slots, from, to), within(all[2].slots, from, to)
			if b < 44 || b > 49 {
				t.Errorf("horizon %d: %d slots at 10/s in 4.8 s", horizon, b)
			}
			if all := a + b + c; all < 960*97/100 {
				t.Errorf("horizon %d: %d slots of 960", horizon, all)
			}
			if a < c*9/10 || c < a*9/10 {
				t.Errorf("horizon %d: the others have %d and %d", horizon, a, c)
			}
		}
	})
}

// Places in flight are shared by weight too, and none stays empty: a place that one frees is not its own.
func TestShareOfPlaces(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		for seed := range uint64(2) {
			const places = 8
			chance := rand.New(rand.NewPCG(seed, 1))
			all := sharing(t, base, poolSettings{rateCount: 10_000, inFlight: places}, settings{rateCount: 100_000, capacity: 2000, inFlight: 100_000}, 3, 1)
			var got [2]int
			var flying [2][]lease
			wake := []int{0, 1}
			for range 600 {
				// Who is woken first is chance; who waits comes when it was told to, here: soon.
				if chance.IntN(2) == 0 {
					wake[0], wake[1] = wake[1], wake[0]
				}
				for _, i := range wake {
					c := all[i].claim(ask{horizon: 20_000})
					flying[i] = append(flying[i], c.jobs...)
					got[i] += len(c.jobs)
				}
				if n := len(flying[0]) + len(flying[1]); n > places {
					t.Fatalf("%d in flight of at most %d", n, places)
				}
				base.pass(3000)
				i := chance.IntN(2)
				if len(flying[i]) == 0 {
					i = 1 - i
				}
				all[i].settle(outcome{lease: flying[i][0], result: done})
				flying[i] = flying[i][1:]
				if got[0]+got[1] > 300 {
					break
				}
			}
			if share := float64(got[0]) / float64(got[0]+got[1]); share < 0.70 || share > 0.80 {
				t.Fatalf("%v: %.1f %%, want 75 %%", got, 100*share)
			}
		}
	})
}

// Buckets that are as fast as their pool share by weight too, with several dispatchers each.
func TestShareOfBucketsAsFastAsThePool(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		for _, rate := range []int64{100, 200, 500} {
			chance := rand.New(rand.NewPCG(uint64(rate), 1))
			own := settings{rateCount: rate, capacity: 20 * rate, inFlight: 100_000}
			all := sharing(t, base, poolSettings{rateCount: rate}, own, 3, 1)
			for _, s := range all {
				s.horizon, s.lead = min(16*second/rate, 200_000), 400
				s.late = func() int64 { return 300 + chance.Int64N(600) }
				other := *s
				all = append(all, &other)
			}
			began := base.now()
			all[1].at, all[3].at = began+second/50, began+second/50 // the second begins to share with one that has all slots
			share(t, all, 8*second, 500)
			from, to := began+second, began+15*second/2
			count := func(n int) int64 { return within(all[n].slots, from, to) + within(all[n+2].slots, from, to) }
			a, b := count(0), count(1)
			if share := float64(a) / float64(a+b); share < 0.74 || share > 0.76 {
				t.Errorf("%d/s: %d and %d: %.1f %%, want 75 %%", rate, a, b, 100*share)
			}
			if want := rate * 65 / 10; a+b < want*98/100 {
				t.Errorf("%d/s: %d slots, want %d", rate, a+b, want)
			}
		}
	})
}
