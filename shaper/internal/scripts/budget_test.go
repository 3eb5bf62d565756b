package scripts_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// charge is what a departure counts in a budget, at its slot.
type charge struct {
	at, cost int64
}

// charges are those of a level, in the order of their slots.
type charges []*charge

// within is the most that is charged in a window of that length, ending with any of the charges.
func (c charges) within(length int64) (most int64) {
	sum, first := int64(0), 0
	for _, last := range c {
		sum += last.cost
		for ; c[first].at <= last.at-length; first++ {
			sum -= c[first].cost
		}
		most = max(most, sum)
	}
	return most
}

func (c *charges) add(at, cost int64) *charge {
	one := &charge{at, cost}
	i, _ := slices.BinarySearchFunc(*c, at+1, func(c *charge, at int64) int { return int(c.at - at) })
	*c = slices.Insert(*c, i, one)
	return one
}

// setBudgets writes budgets of the bucket, of its flows or of its groups: prefix is "", "flow_" or "group_".
func (r *rig) setBudgets(prefix, budgets string, burst int) {
	r.t.Helper()
	r.hset("settings", prefix+"budgets", budgets, "budget_burst", burst)
}

// ownBudgets gives one flow, or one group, budgets of its own, as control_flow.lua does.
func (r *rig) ownBudgets(hash, name, budgets string) {
	r.t.Helper()
	r.hset(hash, name, "- - - - - - -\n-\n-\n-\n-\n"+strconv.Quote(budgets))
	r.hset("settings", "own_budgets", "1")
}

// putUnits enqueues jobs that reserve so many tokens each.
func (r *rig) putUnits(flow string, costs map[string]int64, ids ...string) {
	r.t.Helper()
	jobs := make([]entry, len(ids))
	for i, id := range ids {
		jobs[i] = entry{id: id, units: fmt.Sprintf("input:%d,output:%d", costs[id]/2, costs[id]-costs[id]/2)}.in(r, flow)
	}
	for i, a := range r.enqueue(nil, jobs...) {
		must.Be(r.t, a.code, 1, "enqueue %s: code", ids[i])
	}
}

// What a job gives back whose slice has left the window is not taken from newer slices: also where a claim that handed out nothing has dropped
// that slice, and the clock of the last claim that did is the one before.
func TestLateRefundsAreOfTheirOwnSlice(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		r.setBudgets("", fmt.Sprint("tokens 100 ", 10*second, ";"), 100)
		r.claim(ask{})
		r.pass(second)
		r.putUnits("", map[string]int64{"old": 40, "new": 50, "next": 60}, "old", "new", "next")
		old := r.claim(ask{want: 1})
		r.pass(5 * second)
		if c := r.claim(ask{}); old.ids() != "old" || c.ids() != "new" {
			t.Fatalf("claimed %q, then %q", old.ids(), c.ids())
		}
		r.pass(5500_000)
		must.Be(t, r.claim(ask{}).ids(), "", "claimed")
		r.settle(outcome{lease: old.jobs[0], result: done, used: "0"})
		r.pass(1000)
		must.Equal(t, r.claim(ask{}).ids(), "", "of 60 left beside one of 50, of a budget of 100")
	})
}

// The promise of a budget, against an exact log: in every window of it the charges are at most the amount, whatever is reserved, used, given
// back or lost, over dispatchers and steps of the clock. In any part of a window that is spread they are at most that part, the burst, a
// slice and one job.
func TestBudgetInEveryWindow(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		r := base.fresh(rt, fmt.Sprint("b", nextClaim()))
		r.setTime(epoch)
		length := rapid.SampledFrom([]int64{2 * second, 10 * second, 60 * second, 2 * 3600 * second}).Draw(rt, "window")
		amount := rapid.Int64Range(20, 100_000).Draw(rt, "amount")
		burst := rapid.SampledFrom([]int{0, 5, 20, 50, 100}).Draw(rt, "burst")
		r.configure(settings{rateCount: rapid.SampledFrom([]int64{20, 1000}).Draw(rt, "rate"), capacity: 10_000, inFlight: 10_000})
		r.setBudgets("", fmt.Sprintf("tokens %d %d;", amount, length), burst)
		costs, logged := map[string]int64{}, charges{}
		ids := numbered(150)
		for _, id := range ids {
			costs[id] = rapid.Int64Range(1, max(amount/rapid.Int64Range(2, 60).Draw(rt, "part"), 1)).Draw(rt, "cost")
		}
		r.putUnits("", costs, ids...)
		var held []lease
		of := map[string]*charge{}
		var shift, stepped int64 // by which the clock is ahead of the time that has passed; by which it has just stepped forwards
		for range 120 {
			horizon := rapid.Int64Range(1, 200_000).Draw(rt, "horizon")
			c := r.claim(ask{
				dispatcher: rapid.SampledFrom([]string{"d1", "d2"}).Draw(rt, "dispatcher"), want: rapid.Int64Range(1, 20).Draw(rt, "want"), horizon: horizon, stepped: stepped,
			})
			stepped = 0
			for _, job := range c.jobs {
				of[job.id] = logged.add(job.slot-shift, costs[job.id])
			}
			held = append(held, c.jobs...)
			if most := logged.within(length); most > amount {
				rt.Fatalf("%d of %d charged in a window", most, amount)
			}
			if burst < 100 && length <= 3600*second && len(logged) > 0 {
				for part := length / 20; part < length; part += length / 20 {
					shares := float64(part)/float64(length) + float64(burst)/100 + 0.011 // of the amount: the part, the burst and a slice
					allowed := float64(amount)*shares + float64(slices.MaxFunc(logged, func(a, b *charge) int { return int(a.cost - b.cost) }).cost)
					if most := logged.within(part); float64(most) > allowed {
						rt.Fatalf("%d charged in %d µs of %d, where %.1f are allowed", most, part, length, allowed)
					}
				}
			}
			switch rapid.SampledFrom([]string{"next", "next", "step", "settle", "settle", "idle", "clock"}).Draw(rt, "then") {
			case "clock":
				by := rapid.Int64Range(-2*length, 2*length).Draw(rt, "clock")
				r.setTime(r.now() + by)
				shift += by
				stepped = max(by, 0)
			case "next":
				r.pass(min(max(c.next-r.now(), 1), length/4))
			case "step":
				r.pass(rapid.Int64Range(1, length/50).Draw(rt, "micros"))
			case "idle":
				r.pass(rapid.Int64Range(1, length*2).Draw(rt, "micros"))
			case "settle":
				n := rapid.IntRange(0, len(held)).Draw(rt, "settled")
				var ended []outcome
				for _, job := range held[:n] {
					o := outcome{lease: job, result: done}
					cost := costs[job.id]
					switch rapid.SampledFrom([]string{"as reserved", "less", "nothing", "returned"}).Draw(rt, "use") {
					case "less":
						cost = rapid.Int64Range(0, cost).Draw(rt, "used")
						o.used = fmt.Sprintf("output:%d,input:0", cost)
					case "nothing":
						o.used, cost = "0", 0
					case "returned":
						o.used, cost, o.result = "0", 0, returned
					}
					of[job.id].cost = cost
					ended = append(ended, o)
				}
				if n > 0 {
					r.settle(ended...)
					held = held[n:]
				}
			}
		}
	})
}
