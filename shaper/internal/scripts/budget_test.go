package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
	r.ok(r.c.HSet(r.ctx, r.key("settings"), prefix+"budgets", budgets, "budget_burst", burst).Err())
}

// putUnits enqueues jobs that reserve so many tokens each.
func (r *rig) putUnits(flow string, costs map[string]int64, ids ...string) {
	r.t.Helper()
	jobs := make([]entry, len(ids))
	for i, id := range ids {
		jobs[i] = entry{id: id, units: fmt.Sprintf("input:%d,output:%d", costs[id]/2, costs[id]-costs[id]/2)}.in(r, flow)
	}
	for i, a := range r.enqueue(nil, jobs...) {
		if a.code != 1 {
			r.t.Fatalf("enqueue %s: code %d", ids[i], a.code)
		}
	}
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
					allowed := amount*part/length + amount*int64(burst)/100 + amount*11/1000 + slices.MaxFunc(logged, func(a, b *charge) int { return int(a.cost - b.cost) }).cost + 1
					if most := logged.within(part); most > allowed {
						rt.Fatalf("%d charged in %d µs of %d, where %d are allowed", most, part, length, allowed)
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
			} else {
				r.configureFlows(own, flowSettings{})
			}
			r.setBudgets("flow_", text("flow"), 20)
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
				kind, _, _ := strings.Cut(level, " ")
				if sum := log.within(length); sum > most[kind] {
					rt.Fatalf("%s: %d of %d charged in a window", level, sum, most[kind])
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
			for end := r.now() + 5*length; r.now() < end; {
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
			if used := float64(sum) / (4 * amount); used < 0.96 || used > 1 {
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
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		r.setBudgets("", fmt.Sprintf("tokens 100 %d;", 10*second), 100)
		costs := map[string]int64{"a": 50, "b": 50, "c": 50, "d": 50}
		r.putUnits("", costs, "a", "b", "c", "d")
		c := r.claim(ask{})
		if c.ids() != "a b" {
			t.Fatalf("%s left", c.ids())
		}
		if free := c.next - c.now; free < second/2 || free > second {
			t.Errorf("a bucket that waits for its budget is asked again after %d µs", free)
		}
		r.settle(outcome{lease: c.jobs[0], result: done, used: "input:0,output:0"})
		c2 := r.claim(ask{})
		if c2.ids() != "c" {
			t.Fatalf("after a job that used nothing %q left", c2.ids())
		}
		r.settle(outcome{lease: c.jobs[1], result: done, used: "input:10,output:90"})
		r.settle(outcome{lease: c2.jobs[0], result: done, used: "0"})
		if c := r.claim(ask{}); c.ids() != "" {
			t.Errorf("%s left while 100 of 100 are used", c.ids())
		}
		r.pass(10*second + 150_000)
		last := r.claim(ask{})
		if last.ids() != "d" {
			t.Fatalf("%q left when the window was over", last.ids())
		}
		// The margin of the window is a 50th, and a slice a 100th of that.
		if d := last.jobs[0].slot - c.jobs[1].slot; d < 10*second*102/100 || d > 10*second*104/100 {
			t.Errorf("the slot is %d µs after that of the job whose charge it waited for", d)
		}
	})
}

// A settlement counts once, however often it is sent, and so does a claim. A job of another claim changes nothing.
func TestChargesCountOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
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
		if c := r.claim(ask{}); c.ids() != "" {
			t.Errorf("%q left on a full budget", c.ids())
		}
	})
}

// A job that reserves more than a budget has, because that was lowered, becomes a dead letter; jobs behind it leave. One that names no unit
// reserves what the bucket says, at most the budget.
func TestJobsAboveABudget(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 1000})
		r.setBudgets("", fmt.Sprintf("tokens 100 %d;", 10*second), 100)
		r.putUnits("", map[string]int64{"large": 101}, "large")
		r.ok(r.c.HSet(r.ctx, r.key("settings"), "default_reservation", 1000).Err())
		r.put("plain", "other")
		c := r.claim(ask{})
		if c.ids() != "plain" || len(c.died) != 1 || c.died[0].id != "large" || c.died[0].why != -4 {
			t.Errorf("%q left, dead are %+v", c.ids(), c.died)
		}
	})
}

// A changed amount keeps what was charged, and so does a changed window; a budget that is new knows nothing.
func TestChangedBudgets(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
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
			if c := r.claim(ask{want: 9}); len(c.jobs) != 9 {
				t.Fatalf("%d left", len(c.jobs))
			}
			r.setBudgets("", change.budgets, 100)
			if c := r.claim(ask{}); len(c.jobs) != change.left {
				t.Errorf("%s: %d left after the change, want %d", name, len(c.jobs), change.left)
			}
		}
	})
}

// A receipt tells when the job leaves, by what the last jobs reserved: so do max_wait, and the estimate of the bucket.
func TestEstimatesCountBudgets(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, base *rig) {
		for _, kind := range []string{"bucket", "flow", "pool"} {
			r := base.fresh(t, fmt.Sprint("b", nextClaim()))
			r.setTime(epoch)
			const length = 10 * second
			budgets := fmt.Sprintf("tokens 1000 %d;", length)
			own := settings{rateCount: 1000, capacity: 10_000, inFlight: 10_000}
			flow := ""
			switch kind {
			case "bucket":
				r.configure(own)
				r.setBudgets("", budgets, 20)
			case "flow":
				flow = "f"
				r.configureFlows(own, flowSettings{})
				r.setBudgets("flow_", budgets, 20)
			case "pool":
				r = base.pooled(t, r.name+"p", r.name, 1, own)
				r.configurePool(poolSettings{rateCount: 1000})
				r.ok(r.c.HSet(r.ctx, r.poolKey("conf"), "budgets", budgets, "budget_burst", 20).Err())
			}
			costs, ids := map[string]int64{}, numbered(60)
			for _, id := range ids {
				costs[id] = 50
			}
			r.putUnits(flow, costs, ids...)
			var last answer
			told := int64(0)
			for r.now() < epoch+60*second {
				var c claimed
				if kind == "flow" {
					c = r.drain(ask{})
				} else {
					c = r.claim(ask{})
				}
				var ended []outcome
				left := int64(0)
				for _, job := range c.jobs {
					ended = append(ended, outcome{lease: job, result: done, used: "="})
					if job.id == "last" {
						left = job.slot
					}
				}
				if len(ended) > 0 {
					r.settle(ended...)
				}
				if left > 0 {
					if d := left - last.eta; d < -second || d > second {
						t.Errorf("%s: the job leaves after %d µs, its receipt said %d", kind, left-told, last.eta-told)
					}
					break
				}
				if told == 0 && r.now() > epoch+2*second {
					told = r.now()
					last = r.enqueue(nil, entry{id: "last", units: "tokens:50"}.in(r, flow))[0]
					if a := r.enqueue(nil, entry{id: "hasty", units: "tokens:50", maxWait: fmt.Sprint(second)}.in(r, flow))[0]; a.code != 17 {
						t.Errorf("%s: a job that may wait a second: %+v", kind, a)
					}
				}
				r.pass(100_000)
			}
			if told == 0 || r.now() >= epoch+60*second {
				t.Errorf("%s: the last job did not leave", kind)
			}
		}
	})
}

// The charges of a pool follow steps of the clock: what fills a budget still fills it after a step that all buckets tell of, and leaves when
// its window has passed.
func TestPoolBudgetWhileTheClockSteps(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, base *rig) {
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
			if c := buckets[0].claim(ask{}); c.ids() != "a b" {
				t.Fatalf("%s left", c.ids())
			}
			base.setTime(base.now() + step)
			for range 2 { // both tell, and ask again
				for _, b := range buckets {
					if c := b.claim(ask{stepped: max(step, 0)}); c.ids() != "" {
						t.Errorf("after a step by %d s %s left", step/second, c.ids())
					}
				}
			}
			base.pass(10*second + 400_000)
			if c := buckets[1].claim(ask{}); c.ids() != "a b" {
				t.Errorf("a window after a step by %d s %q left", step/second, c.ids())
			}
		}
	})
}
