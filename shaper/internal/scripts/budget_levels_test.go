package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// Budgets of flows, of groups and of a pool, against a log of each: also while the pool's own slots are given out of order.
func TestBudgetsOfEachLevel(t *testing.T) {
	t.Parallel()
	base := realRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		const length = 10 * second
		kind := rapid.SampledFrom([]string{"flows", "groups", "pool"}).Draw(rt, "kind")
		name := fmt.Sprint("b", nextClaim())
		base.setTime(epoch)
		own := settings{rateCount: 200, capacity: 10_000, inFlight: 10_000}
		buckets := []*rig{base.fresh(rt, name)}
		most := map[string]int64{}
		amount := func(what string) int64 {
			n := rapid.Int64Range(50, 5000).Draw(rt, "budget of "+what)
			most[what] = n
			return n
		}
		text := func(what string) string { return fmt.Sprintf("tokens %d %d;", amount(what), length) }
		if kind == "pool" {
			buckets = nil
			for i := range 3 {
				b := base.pooled(rt, name, fmt.Sprint(name, ".", i), int64(i+1), own)
				if i == 0 {
					b.configurePool(poolSettings{rateCount: 300})
					b.ok(b.c.HSet(b.ctx, b.poolKey("conf"), "budgets", text("pool"), "budget_burst", 20).Err())
				}
				b.setBudgets("", text(b.name), 20)
				buckets = append(buckets, b)
			}
		} else {
			r := buckets[0]
			if kind == "groups" {
				r.configureGroups(own, flowSettings{}, flowSettings{})
				r.setBudgets("group_", text("group"), 20)
				r.ownBudgets("group_settings", "g0", text("group g0"))
				r.ownBudgets("flow_settings", path("g1", "f1"), text("flow "+path("g1", "f1")))
			} else {
				r.configureFlows(own, flowSettings{})
				r.ownBudgets("flow_settings", "f1", text("flow f1"))
			}
			if rapid.Bool().Draw(rt, "all flows have a budget") {
				r.setBudgets("flow_", text("flow"), 20)
			}
			r.setBudgets("", text("bucket"), 20)
		}
		least := slices.Min(slices.Collect(maps.Values(most)))
		costs := map[string]int64{}
		for _, r := range buckets {
			for f := range 4 {
				flow := ""
				if kind != "pool" {
					flow = fmt.Sprint("f", f)
				}
				if kind == "groups" {
					flow = path(fmt.Sprint("g", f%2), flow)
				}
				var ids []string
				for i := range 40 {
					id := fmt.Sprint(r.name, "-", f, "-", i)
					ids, costs[id] = append(ids, id), rapid.Int64Range(1, max(least/3, 1)).Draw(rt, "cost")
				}
				r.putUnits(flow, costs, ids...)
			}
		}
		logs, of, held := map[string]*charges{}, map[string][]*charge{}, map[string][]lease{}
		shift, stepped := int64(0), map[string]int64{} // as above; which buckets are still to be told of the step
		note := func(level string, job lease) {
			if logs[level] == nil {
				logs[level] = &charges{}
			}
			of[job.id] = append(of[job.id], logs[level].add(job.slot-shift, costs[job.id]))
		}
		for range 80 {
			r := rapid.SampledFrom(buckets).Draw(rt, "bucket")
			a := ask{dispatcher: rapid.SampledFrom([]string{"d1", "d2"}).Draw(rt, "dispatcher"), want: rapid.Int64Range(1, 20).Draw(rt, "want"), horizon: rapid.Int64Range(1, 200_000).Draw(rt, "horizon")}
			var c claimed
			if r.hasFlows {
				r.asker = a.dispatcher
				c = r.drain(a)
			} else {
				a.stepped = stepped[r.name]
				delete(stepped, r.name)
				c = r.claim(a)
			}
			for _, job := range c.jobs {
				of[job.id] = nil
				switch kind {
				case "pool":
					note("pool", job)
					note(r.name, job)
				case "groups":
					group, _ := splitPath(job.flow)
					note("group "+group, job)
					fallthrough
				default:
					note("flow "+job.flow, job)
					note("bucket", job)
				}
			}
			held[r.name] = append(held[r.name], c.jobs...)
			for level, log := range logs {
				bound, isOwn := most[level]
				if kind, _, _ := strings.Cut(level, " "); !isOwn {
					bound, isOwn = most[kind]
				}
				if sum := log.within(length); isOwn && sum > bound {
					rt.Fatalf("%s: %d of %d charged in a window", level, sum, bound)
				}
			}
			if rapid.Bool().Draw(rt, "settles") {
				var ended []outcome
				for _, job := range held[r.name] {
					used := rapid.Int64Range(0, costs[job.id]).Draw(rt, "used")
					for _, c := range of[job.id] {
						c.cost = used
					}
					ended = append(ended, outcome{lease: job, result: done, used: fmt.Sprint("tokens:", used)})
				}
				held[r.name] = nil
				if len(ended) > 0 {
					r.settle(ended...)
				}
			}
			r.pass(rapid.Int64Range(1, length/20).Draw(rt, "micros"))
			if kind == "pool" && len(stepped) == 0 && rapid.IntRange(0, 9).Draw(rt, "clock steps") == 0 {
				by := rapid.Int64Range(-length, length).Draw(rt, "clock")
				r.setTime(r.now() + by)
				shift += by
				for _, b := range buckets {
					stepped[b.name] = max(by, 0)
				}
			}
		}
		total := 0
		for _, log := range logs {
			total += len(*log)
		}
		if total == 0 {
			rt.Fatalf("nothing left")
		}
	})
}

// A changed amount keeps what was charged, and so does a changed window; a budget that is new knows nothing.
func TestChangedBudgets(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		for name, change := range map[string]struct {
			budgets string
			left    int
		}{
			"the same":      {fmt.Sprintf("tokens 100 %d;", 10*second), 1},
			"more":          {fmt.Sprintf("tokens 200 %d;", 10*second), 11},
			"longer":        {fmt.Sprintf("tokens 100 %d;", 60*second), 1},
			"shorter":       {fmt.Sprintf("tokens 100 %d;", 5*second), 1},
			"another unit":  {fmt.Sprintf("images 3 %d;", 10*second), 3},
			"one more":      {fmt.Sprintf("images 5 %d;tokens 100 %[1]d;", 10*second), 1},
			"less":          {fmt.Sprintf("tokens 50 %d;", 10*second), 0},
			"none any more": {"", 16},
		} {
			r := r.fresh(t, fmt.Sprint("b", nextClaim()))
			r.configure(settings{rateCount: 1000})
			r.setBudgets("", fmt.Sprintf("tokens 100 %d;", 10*second), 100)
			costs, ids := map[string]int64{}, numbered(25)
			for _, id := range ids {
				costs[id] = 10
			}
			r.putUnits("", costs, ids...)
			must.Be(t, len(r.claim(ask{want: 9}).jobs), 9, "left")
			r.setBudgets("", change.budgets, 100)
			must.Equal(t, len(r.claim(ask{}).jobs), change.left, "%s: left after the change", name)
		}
	})
}

// What was charged above a budget, because the amount was lowered or because answers used more, holds the bucket until it has left the window,
// and no longer, also where the budget is spread. A receipt says so.
func TestExcessOfABudgetEndsWithItsWindow(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		const window = 10 * second
		for name, change := range map[string]struct{ budgets, used string }{
			"lowered":   {fmt.Sprintf("tokens 20 %d;", window), "="},
			"used more": {fmt.Sprintf("tokens 100 %d;", window), "output:900"},
		} {
			for _, pause := range []int64{0, second / 5} {
				name := fmt.Sprintf("%s, a pause of %d ms", name, pause/1000)
				r := base.fresh(t, fmt.Sprint("b", nextClaim()))
				r.setTime(epoch)
				r.configure(settings{rateCount: 1000})
				r.setBudgets("", fmt.Sprintf("tokens 100 %d;", window), 50)
				costs, ids := map[string]int64{}, numbered(5)
				for _, id := range ids {
					costs[id] = 10
				}
				r.putUnits("", costs, ids...)
				var ended []outcome
				for range ids {
					c := r.claim(ask{want: 1})
					must.Be(t, len(c.jobs), 1, "%s: left", name)
					ended = append(ended, outcome{lease: c.jobs[0], result: done, used: change.used})
					r.pass(pause)
				}
				r.settle(ended...)
				charged := r.now()
				r.setBudgets("", change.budgets, 50)
				told := r.enqueue(nil, entry{id: "last", units: "tokens:10"}.in(r, ""))[0].eta
				if waits := told - charged; waits < window-second || waits > window*103/100+second/5 {
					t.Errorf("%s: its receipt says that the job leaves in %d ms", name, waits/1000)
				}
				must.Equal(t, r.job("last").quota, 0, "%s: a bucket without a quota says that its quotas let a job leave at", name)
				r.setTime(charged + window - second)
				if c := r.claim(ask{horizon: 1}); len(c.jobs) > 0 {
					t.Errorf("%s: the job leaves within the window of what was charged above the budget", name)
				}
				r.setTime(told)
				must.Equal(t, len(r.claim(ask{horizon: second / 5}).jobs), 1, "%s: the job does not leave as its receipt said", name)
			}
		}
	})
}

// The charges of a pool follow steps of the clock: what fills a budget still fills it after a step that all buckets tell of, and leaves when
// its window has passed.
func TestPoolBudgetWhileTheClockSteps(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, step := range []int64{3600 * second, -3600 * second} {
			name := fmt.Sprint("b", nextClaim())
			base.setTime(epoch)
			var buckets []*rig
			for i := range 2 {
				b := base.pooled(t, name, fmt.Sprint(name, ".", i), 1, settings{rateCount: 1000})
				if i == 0 {
					b.configurePool(poolSettings{rateCount: 1000})
					b.ok(b.c.HSet(b.ctx, b.poolKey("conf"), "budgets", fmt.Sprintf("tokens 100 %d;", 10*second), "budget_burst", 100).Err())
				}
				b.putUnits("", map[string]int64{"a": 50, "b": 50}, "a", "b")
				buckets = append(buckets, b)
			}
			must.Be(t, buckets[0].claim(ask{}).ids(), "a b", "left")
			base.setTime(base.now() + step)
			for range 2 { // both tell, and ask again
				for _, b := range buckets {
					must.Equal(t, b.claim(ask{stepped: max(step, 0)}).ids(), "", "after a step by %d s left", step/second)
				}
			}
			base.pass(10*second + 400_000)
			must.Equal(t, buckets[1].claim(ask{}).ids(), "a b", "a window after a step by %d s left", step/second)
		}
	})
}
