package scripts_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// The promise of a pool: in every window lie at most R·W + B slots of all its buckets, over all dispatchers, whatever
// they ask for, and never more jobs are in flight than may be; each bucket's own bounds hold, too.
func TestPoolInEveryWindow(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, base *rig) {
		rapid.Check(t, func(rt *rapid.T) {
			pool := poolSettings{
				rateCount: rapid.OneOf(rapid.Int64Range(1, 50), rapid.Int64Range(1, 20_000)).Draw(rt, "count"),
				ratePer:   rapid.SampledFrom([]int64{second / 10, second, 7 * second}).Draw(rt, "per"),
				burst:     rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, 30)).Draw(rt, "burst"),
				inFlight:  rapid.SampledFrom([]int64{0, 0, 3, 20}).Draw(rt, "in flight"),
				quotas:    rapid.SampledFrom([]string{"", "", "20 1000000;"}).Draw(rt, "quotas"),
			}
			name := fmt.Sprint("pool", nextClaim())
			type member struct {
				*rig
				own   settings
				slots []int64
				held  []lease
			}
			var members []*member
			for i := range rapid.IntRange(1, 4).Draw(rt, "buckets") {
				own := settings{
					rateCount: rapid.Int64Range(1, 20_000).Draw(rt, "own count"), ratePer: rapid.SampledFrom([]int64{second, 5 * second}).Draw(rt, "own per"),
					burst: rapid.Int64Range(1, 10).Draw(rt, "own burst"), capacity: 1000, inFlight: rapid.SampledFrom([]int64{2, 1000}).Draw(rt, "own in flight"),
				}
				r := base.pooled(rt, name, fmt.Sprint(name, ".", i), rapid.Int64Range(1, 10).Draw(rt, "weight"), own)
				if i == 0 {
					r.configurePool(pool)
				}
				r.putMany(rapid.IntRange(0, 200).Draw(rt, "jobs"))
				members = append(members, &member{rig: r, own: own})
			}
			var slots []int64
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				m := rapid.SampledFrom(members).Draw(rt, "bucket")
				horizon := rapid.Int64Range(1, 200_000).Draw(rt, "horizon")
				c := m.claim(ask{
					dispatcher: rapid.SampledFrom([]string{"d1", "d2"}).Draw(rt, "dispatcher"), want: rapid.Int64Range(1, 100).Draw(rt, "want"),
					horizon: horizon, lead: rapid.Int64Range(0, horizon/2).Draw(rt, "lead"),
				})
				for _, job := range c.jobs {
					slots, m.slots = append(slots, job.slot), append(m.slots, job.slot)
				}
				m.held = append(m.held, c.jobs...)
				in := int64(0)
				for _, other := range members {
					in += int64(len(other.held))
				}
				if most := pool.inFlight; most > 0 && in > most {
					rt.Fatalf("%d in flight of at most %d", in, most)
				}
				must.Be(rt, m.kept().inFlight, int64(len(m.held)), "the pool counts of %s in flight, there are %d", m.name, len(m.held))
				switch rapid.SampledFrom([]string{"stay", "step", "next", "idle", "settle", "lose"}).Draw(rt, "then") {
				case "step":
					m.pass(rapid.Int64Range(1, 100_000).Draw(rt, "micros"))
				case "next":
					m.pass(max(c.next-m.now(), 1))
				case "idle":
					m.pass(pool.ratePer * rapid.Int64Range(1, 50).Draw(rt, "intervals") / pool.rateCount)
				case "settle":
					if n := rapid.IntRange(0, len(m.held)).Draw(rt, "settled"); n > 0 {
						var all []outcome
						for _, job := range m.held[:n] {
							all = append(all, outcome{lease: job, result: rapid.SampledFrom([]int{done, retry, dead, returned}).Draw(rt, "result")})
						}
						m.settle(all...)
						m.held = m.held[n:]
					}
				case "lose": // its dispatcher died
					if len(m.held) > 0 {
						m.end(m.held[0].id)
						m.sweep(sweep{pardon: true}) // it may find others whose lease has run out meanwhile
						m.held = slices.DeleteFunc(m.held, func(l lease) bool {
							return m.c.ZScore(m.ctx, m.key("leases"), l.id).Err() != nil
						})
					}
				}
			}
			checkWindows(rt, slots, settings{rateCount: pool.rateCount, ratePer: pool.ratePer, burst: pool.burst})
			if pool.quotas != "" {
				slices.Sort(slots)
				for i := 20; i < len(slots); i++ {
					if slots[i]-slots[i-20] < second {
						rt.Fatalf("21 slots in %d µs", slots[i]-slots[i-20])
					}
				}
			}
			for _, m := range members {
				checkWindows(rt, m.slots, m.own)
			}
		})
	})
}
