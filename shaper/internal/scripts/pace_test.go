package scripts_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The promise of the pace: in every window of length W lie at most R·W + B
// slots, over all dispatchers and whatever they ask for. Slots are whole
// microseconds, so a window may be short by one.
func TestPaceInEveryWindow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, fmt.Sprint("p", nextClaim()))
			s := settings{
				rateCount: rapid.OneOf(rapid.Int64Range(1, 50), rapid.Int64Range(1, 50_000)).Draw(rt, "count"),
				ratePer:   rapid.SampledFrom([]int64{second / 10, second, 7 * second, 60 * second, 3600 * second}).Draw(rt, "per"),
				burst:     rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, 40)).Draw(rt, "burst"),
				capacity:  100_000, inFlight: 100_000,
			}
			if s.rateCount*second > 50_000*s.ratePer {
				s.rateCount = 50_000 * s.ratePer / second
			}
			r.configure(s)
			r.put(numbered(150)...)
			r.doom(rapid.SliceOfNDistinct(rapid.IntRange(0, 149), 0, 40, rapid.ID[int]).Draw(rt, "on their last chance"))
			var slots []int64
			for range rapid.IntRange(1, 12).Draw(rt, "claims") {
				horizon := rapid.Int64Range(1, 200_000).Draw(rt, "horizon")
				c := r.claim(ask{
					dispatcher: rapid.SampledFrom([]string{"d1", "d2", "d3", "d4"}).Draw(rt, "dispatcher"),
					want:       rapid.Int64Range(1, 100).Draw(rt, "want"),
					horizon:    horizon,
					lead:       rapid.Int64Range(0, horizon/2).Draw(rt, "lead"),
					holdsLone:  rapid.Bool().Draw(rt, "holds"),
				})
				for _, job := range c.jobs {
					slots = append(slots, job.slot)
				}
				switch rapid.SampledFrom([]string{"stay", "step", "next", "idle"}).Draw(rt, "then") {
				case "step":
					r.pass(rapid.Int64Range(1, 100_000).Draw(rt, "micros"))
				case "next":
					r.pass(max(c.next-r.now(), 1))
				case "idle":
					r.pass(s.ratePer * rapid.Int64Range(1, 50).Draw(rt, "intervals") / s.rateCount)
				}
			}
			checkWindows(rt, slots, s)
		})
	})
}

// checkWindows looks at all windows between two slots, in exact arithmetic:
// n slots from the first to the last of a window need (n-B)/R of time.
func checkWindows(t tb, slots []int64, s settings) {
	// One with a short lead may use what a burst left before one with a longer.
	slots = slices.Sorted(slices.Values(slots))
	times := func(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
	// The tightest window that ends with a slot begins with the slot that is the furthest behind an even row without a burst.
	least := new(big.Int).Sub(times(1-s.burst, s.ratePer), big.NewInt(s.rateCount))
	first, furthest := 0, new(big.Int)
	for j := range slots {
		behind := new(big.Int).Sub(times(slots[j], s.rateCount), times(int64(j), s.ratePer))
		if j == 0 || behind.Cmp(furthest) > 0 {
			first, furthest = j, behind
		} else if new(big.Int).Sub(behind, furthest).Cmp(least) < 0 {
			t.Fatalf("%d slots in %d µs at %d in %d µs, burst %d", j-first+1, slots[j]-slots[first], s.rateCount, s.ratePer, s.burst)
		}
	}
}

// With a backlog the pace is not only kept but reached, whoever claims, and
// though some jobs are parked.
func TestPaceIsReached(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, fmt.Sprint("p", nextClaim()))
			s := settings{rateCount: rapid.Int64Range(1, 500).Draw(rt, "count"), ratePer: second, capacity: 100_000, inFlight: 100_000}
			r.configure(s)
			r.put(numbered(700)...) // more than can leave: with only parked jobs left, slots pass
			r.doom(rapid.SliceOfNDistinct(rapid.IntRange(0, 699), 0, 100, rapid.ID[int]).Draw(rt, "on their last chance"))
			var slots []int64
			late, next := int64(0), int64(0) // on a real server, whose clock runs while others compute
			for range 8 {
				c := r.claim(ask{
					dispatcher: rapid.SampledFrom([]string{"d1", "d2"}).Draw(rt, "dispatcher"), lead: 1000,
					holdsLone: rapid.Bool().Draw(rt, "holds"),
				})
				for _, job := range c.jobs {
					slots = append(slots, job.slot)
				}
				if next != 0 {
					late += max(c.now+1000-next, 0)
				}
				next = c.next
				// The next claim comes when half of the horizon is left.
				r.pass(max(c.next-100_000-r.now(), 0))
			}
			if n := len(slots); n > 1 {
				took, want := slots[n-1]-slots[0], int64(n-1)*s.ratePer/s.rateCount
				if took > want+late+1 {
					rt.Fatalf("%d slots take %d µs, want %d, and the claims were %d late", n, took, want, late)
				}
			}
		})
	})
}

// A change of the rate is no way around it: over the change at most the larger
// of the two rates holds.
func TestPaceOverARateChange(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			r := base.fresh(rt, fmt.Sprint("p", nextClaim()))
			draw := func(revision int64) settings {
				return settings{
					rateCount: rapid.Int64Range(1, 1000).Draw(rt, "count"), ratePer: second,
					burst:    rapid.Int64Range(1, 20).Draw(rt, "burst"),
					capacity: 100_000, inFlight: 100_000, revision: revision,
				}
			}
			old, young := draw(0), draw(1)
			var slots []int64
			r.configure(old)
			r.put(numbered(150)...)
			claim := func() {
				for range rapid.IntRange(1, 6).Draw(rt, "claims") {
					c := r.claim(ask{want: rapid.Int64Range(1, 50).Draw(rt, "want")})
					for _, job := range c.jobs {
						slots = append(slots, job.slot)
					}
					r.pass(rapid.Int64Range(1, second).Draw(rt, "micros"))
				}
			}
			claim()
			r.configure(young)
			claim()
			old.rateCount, old.burst = max(old.rateCount, young.rateCount), max(old.burst, young.burst)
			checkWindows(rt, slots, old)
		})
	})
}

// Numbers of the largest size that the settings allow keep their last digit.
func TestExtremePace(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const month = 31 * 24 * 3600 * second
		r.configure(settings{rateCount: 1, ratePer: month, burst: 10})
		r.put(numbered(20)...)
		base := r.now() - 3 // one of the burst is used
		r.hset("pace", "slot", base, "frac", 0)
		c := r.claim(ask{})
		if len(c.jobs) != 9 || c.next != base+month {
			t.Errorf("%d jobs, next %d, want %d", len(c.jobs), c.next, base+month)
		}
		if slot, err := r.c.HGet(r.ctx, r.key("pace"), "slot").Int64(); err != nil || slot != base+9*month || slot > math.MaxInt64/2 {
			t.Errorf("slot %d, %v, want %d", slot, err, base+9*month)
		}
	})
}
