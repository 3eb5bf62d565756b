package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// While jobs wait, little of a budget stays unused: the margin of its window and a slice.
func TestBudgetIsUsed(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	for _, length := range []int64{10 * second, 24 * 3600 * second} {
		for _, burst := range []int{0, 20, 100} {
			r := base.fresh(t, fmt.Sprint("b", nextClaim()))
			r.setTime(epoch)
			r.configure(settings{rateCount: 1000, capacity: 100_000, inFlight: 100_000})
			const amount = 10_000
			r.setBudgets("", fmt.Sprintf("tokens %d %d;", amount, length), burst)
			costs, ids := map[string]int64{}, numbered(600)
			for i, id := range ids {
				costs[id] = int64(50 + i*7%100)
			}
			r.putUnits("", costs, ids...)
			var logged charges
			for end := r.now() + 3*length; r.now() < end; {
				c := r.claim(ask{})
				var ended []outcome
				for _, job := range c.jobs {
					logged.add(job.slot, costs[job.id])
					ended = append(ended, outcome{lease: job, result: done, used: "="})
				}
				if len(ended) > 0 {
					r.settle(ended...)
				}
				r.pass(length / 400)
			}
			sum := int64(0)
			for _, c := range logged {
				if c.at > epoch+length {
					sum += c.cost
				}
			}
			if used := float64(sum) / (2 * amount); used < 0.96 || used > 1 {
				t.Errorf("%.4f of a budget of %d µs is used, burst %d %%", used, length, burst)
			}
		}
	}
}

// A large job among small ones leaves within a window of its turn, whoever claims: what leaves meanwhile leaves it room.
func TestALargeJobDoesNotStarve(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	const length, amount = 10 * second, 1000
	for _, kind := range []string{"list", "flows", "pool"} {
		r := base.fresh(t, fmt.Sprint("b", nextClaim()))
		r.setTime(epoch)
		own := settings{rateCount: 100, capacity: 100_000, inFlight: 100_000}
		budgets := fmt.Sprintf("tokens %d %d;", amount, length)
		others := []*rig{r}
		switch kind {
		case "list":
			r.configure(own)
			r.setBudgets("", budgets, 100)
		case "flows":
			r.configureFlows(own, flowSettings{maxFlows: 2000})
			r.setBudgets("", budgets, 100)
		case "pool":
			r = base.pooled(t, r.name+"p", r.name, 1, own)
			other := base.pooled(t, r.pool, r.name+"o", 1, own)
			r.configurePool(poolSettings{rateCount: 200})
			r.ok(r.c.HSet(r.ctx, r.poolKey("conf"), "budgets", budgets, "budget_burst", 100).Err())
			others = []*rig{other, r}
		}
		costs := map[string]int64{"large": amount * 8 / 10}
		put := func(r *rig, flow string, id string) {
			costs[id] = 10
			r.putUnits(flow, costs, id)
		}
		n := 0
		more := func() { // small jobs come all the time
			for ; n < 20+int(r.now()-epoch)/105_000; n++ {
				flow := ""
				if kind == "flows" {
					flow = fmt.Sprint("f", n%20)
				}
				put(others[0], flow, fmt.Sprint("s", n))
			}
		}
		large, came := int64(0), int64(0)
		for step := 0; r.now() < epoch+4*length && large == 0; step++ {
			more()
			if came == 0 && r.now() > epoch+length {
				flow := ""
				if kind == "flows" {
					flow = "big"
				}
				came = r.now()
				r.putUnits(flow, costs, "large")
			}
			for _, b := range others {
				var c claimed
				a := ask{dispatcher: fmt.Sprint("d", step%3), horizon: 50_000}
				if kind == "flows" {
					b.asker = a.dispatcher
					// One that claims between the two steps of another one has other flows.
					of := b.reserve(20, 50_000)
					b.asker = "between"
					c = b.drain(ask{dispatcher: "between", horizon: 50_000})
					if len(of.flows) > 0 {
						rest := b.claimFlows(a, of)
						c.jobs = append(c.jobs, rest.jobs...)
					}
				} else {
					c = b.claim(a)
				}
				var ended []outcome
				for _, job := range c.jobs {
					if job.id == "large" {
						large = job.slot
					}
					ended = append(ended, outcome{lease: job, result: done, used: "="})
				}
				if len(ended) > 0 {
					b.settle(ended...)
				}
			}
			r.pass(20_000)
		}
		if large == 0 || large-came > length+length/10 {
			t.Errorf("%s: the large job came at %d and left at %d, %d small ones came", kind, came-epoch, large-epoch, n)
		}
	}
}

// What a job used beyond its reservation stays charged, and nothing leaves until it fits. What it used less is free at once.
func TestUsageIsCharged(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		r.setBudgets("", fmt.Sprintf("tokens 100 %d;", 10*second), 100)
		costs := map[string]int64{"a": 50, "b": 50, "c": 50, "d": 50}
		r.putUnits("", costs, "a", "b", "c", "d")
		c := r.claim(ask{})
		must.Be(t, c.ids(), "a b", "left")
		if free := c.next - c.now; free < second/2 || free > second {
			t.Errorf("a bucket that waits for its budget is asked again after %d µs", free)
		}
		r.settle(outcome{lease: c.jobs[0], result: done, used: "input:0,output:0"})
		c2 := r.claim(ask{})
		must.Be(t, c2.ids(), "c", "after a job that used nothing left")
		r.settle(outcome{lease: c.jobs[1], result: done, used: "input:10,output:90"})
		r.settle(outcome{lease: c2.jobs[0], result: done, used: "0"})
		must.Equal(t, r.claim(ask{}).ids(), "", "left while 100 of 100 are used")
		r.pass(10*second + 150_000)
		last := r.claim(ask{})
		must.Be(t, last.ids(), "d", "left when the window was over")
		// The margin of the window is a 50th, and a slice a 100th of that.
		if d := last.jobs[0].slot - c.jobs[1].slot; d < 10*second*102/100 || d > 10*second*104/100 {
			t.Errorf("the slot is %d µs after that of the job whose charge it waited for", d)
		}
	})
}

// A settlement counts once, however often it is sent, and so does a claim. A job of another claim changes nothing.
func TestChargesCountOnce(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		r.setBudgets("", fmt.Sprintf("tokens 100 %d;", 10*second), 100)
		costs := map[string]int64{"a": 50, "b": 30, "c": 60, "d": 40}
		r.putUnits("", costs, "a", "b", "c", "d")
		c := r.claim(ask{claim: "one", want: 2})
		again := r.claim(ask{claim: "one", want: 2})
		if c.ids() != "a b" || again.ids() != "a b" || again.jobs[0].charged != c.jobs[0].charged || again.jobs[1].charged != c.jobs[1].charged {
			t.Fatalf("claimed %+v, again %+v", c.jobs, again.jobs)
		}
		for range 2 {
			r.settle(outcome{lease: c.jobs[0], result: done, used: "output:10,input:0"})
		}
		stale := c.jobs[1]
		stale.claim = "other"
		r.settle(outcome{lease: stale, result: done, used: "0"})
		if c := r.claim(ask{}); c.ids() != "c" { // 10 + 30 + 60
			t.Errorf("%q left", c.ids())
		}
		must.Equal(t, r.claim(ask{}).ids(), "", "left on a full budget")
	})
}

// An answer that is given again does not tell of the budgets that one flow has of its own: what its jobs reserved of a unit that they do not name
// is what the bucket says, then too.
func TestChargesOfAnAnswerGivenAgain(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configureFlows(settings{rateCount: 1000, capacity: 100, inFlight: 100}, flowSettings{})
		r.ownBudgets("flow_settings", "f", fmt.Sprintf("images 10 %d;", 10*second))
		r.hset("settings", "default_reservation", 5, "budget_burst", 100)
		r.enqueue(nil, entry{id: "a"}.in(r, "f"), entry{id: "b"}.in(r, "f"), entry{id: "c"}.in(r, "f"))
		of := r.reserve(100, 200_000)
		c, again := r.claimFlows(ask{claim: "one"}, of), r.claimFlows(ask{claim: "one"}, of)
		if c.ids() != "a b" || again.ids() != "a b" {
			t.Fatalf("%q left, given again are %q", c.ids(), again.ids())
		}
		r.settle(outcome{lease: again.jobs[0], result: done, used: "0"})
		must.Equal(t, r.drain(ask{}).ids(), "c", "left after a job that used nothing")
	})
}

// A job that reserves more than a budget has does not get in. One for which a budget was lowered since becomes a dead letter; jobs behind it leave. One that names no unit
// reserves what the bucket says, at most the budget.
func TestJobsAboveABudget(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		r.setBudgets("", fmt.Sprintf("images 9 %d;tokens 101 %[1]d;", 10*second), 100)
		r.putUnits("", map[string]int64{"large": 101}, "large")
		refused := r.enqueue(nil, entry{id: "larger", units: "input:2,output:100"})[0]
		if want := fmt.Sprintf("bucket tokens 101 %d", 10*second); refused.code != lua.OverBudget || refused.budget != want || refused.eta != 102 {
			t.Errorf("%+v, want %q", refused, want)
		}
		r.setBudgets("", fmt.Sprintf("tokens 100 %d;", 10*second), 100)
		r.hset("settings", "default_reservation", 1000)
		r.put("plain", "other")
		c := r.claim(ask{})
		if c.ids() != "plain" || len(c.died) != 1 || c.died[0].id != "large" || c.died[0].why != -4 {
			t.Errorf("%q left, dead are %+v", c.ids(), c.died)
		}
	})
}

// Flows come, send one job and never come again. What is kept of their budgets is not much more than what counts.
func TestBudgetsOfFlowsThatStayAwayAreDropped(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		const rounds, newcomers, window = 60, 20, 10
		r.configureFlows(settings{rateCount: 1000, capacity: 10_000, inFlight: 10_000}, flowSettings{})
		r.setBudgets("flow_", fmt.Sprintf("tokens 100 %d;", window*second), 100)
		for i := range rounds {
			for j := range newcomers {
				id := fmt.Sprint(i, "-", j)
				r.putUnits("f"+id, map[string]int64{id: 10}, id)
			}
			for left := newcomers; left > 0; {
				c := r.drain(ask{})
				if len(c.jobs) == 0 {
					t.Fatalf("%d of round %d did not leave", left, i)
				}
				left -= len(c.jobs)
				outcomes := make([]outcome, len(c.jobs))
				for k, job := range c.jobs {
					outcomes[k] = outcome{lease: job, result: done, used: "="}
				}
				r.settle(outcomes...)
			}
			r.pass(second)
		}
		kept := r.hlen("charges")
		if counts := int64(newcomers * window); kept < counts || kept > 3*counts {
			t.Errorf("the budgets of %d flows are kept, %d have departures in the window", kept, counts)
		}
	})
}
