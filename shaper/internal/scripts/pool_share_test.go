package scripts_test

import (
	"fmt"
	"testing"
)

// Jobs of a bucket leave when they were told, also where other buckets of its pool have something to send: each takes its share of the rate
// and of the quotas, by weight, or what its own rate lets it.
func TestEstimatesCountTheBucketsOfThePool(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		for _, c := range []struct {
			name    string
			pool    poolSettings
			weights [2]int64
			rates   [2]int64
			off     int64 // microseconds that a job may leave earlier or later than it was told: what goes first in a turn is not known
		}{
			{name: "rate", pool: poolSettings{rateCount: 4}, weights: [2]int64{1, 1}, rates: [2]int64{10, 10}, off: second},
			{name: "weights", pool: poolSettings{rateCount: 20}, weights: [2]int64{1, 3}, rates: [2]int64{50, 50}, off: second},
			{name: "a slow bucket", pool: poolSettings{rateCount: 10}, weights: [2]int64{1, 1}, rates: [2]int64{20, 1}, off: second},
			{name: "quota", pool: poolSettings{rateCount: 10, quotas: fmt.Sprint(6, " ", 5*second, ";")}, weights: [2]int64{1, 1}, rates: [2]int64{10, 10}, off: 6 * second},
		} {
			pool := fmt.Sprint("p", nextClaim())
			var all [2]*rig
			for i := range all {
				all[i] = base.pooled(t, pool, fmt.Sprint(pool, ".", i), c.weights[i], settings{rateCount: c.rates[i], capacity: 1000, inFlight: 1000})
				if i == 0 {
					all[i].configurePool(c.pool)
				}
				all[i].setTime(epoch)
				all[i].claim0() // the pace begins
			}
			leave := func(length int64, slots map[string]int64) {
				for end := all[0].now() + length; all[0].now() < end; {
					for _, r := range all {
						if got := r.claim(ask{horizon: 200_000}).jobs; len(got) > 0 {
							for _, job := range got {
								slots[job.id] = job.slot
							}
							r.settleAll(done, got...)
						}
					}
					at := all[0].now() + 100_000
					for _, r := range all {
						r.setTime(at)
					}
				}
			}
			leave(second, map[string]int64{})
			ids := append(numbered(20), named("more", 60)...)
			all[1].put(named("other", 150)...)
			all[0].put(named("before", 12)...)
			leave(second, map[string]int64{}) // all that have something to send have come
			told := map[string]int64{}
			for _, id := range ids {
				told[id] = all[0].enqueue(nil, entry{id: id})[0].eta
			}
			if d := all[0].job("j19").instant - told["j19"]; d < -2 || d > 2 {
				t.Errorf("%s: the receipt tells %d µs, the job %d µs more", c.name, told["j19"]-epoch, d)
			}
			if d := all[0].inspect().empty - told["more59"]; d < -2 || d > 2 {
				t.Errorf("%s: the receipt of the last tells %d µs, the bucket %d µs more", c.name, told["more59"]-epoch, d)
			}
			slots := map[string]int64{}
			leave(35*second, slots)
			for _, id := range numbered(6) {
				if d := slots[id] - told[id]; d < -c.off || d > c.off {
					t.Errorf("%s: job %s was told %.3f s, and left at %.3f s", c.name, id, float64(told[id]-epoch)/second, float64(slots[id]-epoch)/second)
				}
			}
		}
	})
}
