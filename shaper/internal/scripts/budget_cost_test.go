package scripts_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// TestCostOfFullBudgets: with two budgets at each level and every slice of all charged, 500 flows that are due at once leave. It prints how long
// the scripts take, by the clock of Redis: none is to take 5 ms.
func TestCostOfFullBudgets(t *testing.T) {
	if !redistest.Soak {
		t.Skip("it prints times: make soak")
	}
	const flows, groups, slices100, settled = 500, 50, 100, 18
	r := realRig(t)
	r.setTime(epoch)
	r.configureGroups(settings{rateCount: 100_000, capacity: 100_000, inFlight: 100_000}, flowSettings{}, flowSettings{})
	const budgets = "tokens 2000000000 60000000;input 2000000000 61000000;"
	for _, level := range []string{"", "group_", "flow_"} {
		r.setBudgets(level, budgets, 100)
	}
	round := func(n int) {
		for f := range flows {
			id := fmt.Sprint(n, "-", f)
			r.putUnits(path(fmt.Sprint("g", f%groups), fmt.Sprint("f", f)), map[string]int64{id: 100}, id)
		}
		jobs, _ := r.drainUntil(32, 200_000)
		if len(jobs) != flows {
			t.Fatalf("%d of %d jobs left", len(jobs), flows)
		}
		for some := range slices.Chunk(jobs, settled) {
			var ended []outcome
			for _, job := range some {
				ended = append(ended, outcome{lease: job, result: done, used: "input:20,output:30"})
			}
			r.settle(ended...)
		}
	}
	for n := range slices100 {
		round(n)
		r.pass(600_000)
	}
	r.noteSlow()
	for n := range 20 {
		round(slices100 + n)
		r.sweep(sweep{})
		r.pass(600_000)
	}
	r.logSlow(t)
	charged := r.hlen("charges")
	t.Logf("%d texts of charges, %d bytes", charged, r.c.MemoryUsage(r.ctx, r.key("charges"), 0).Val())
}

// noteSlow has Redis note the runs of scripts of more than half a millisecond.
func (r *rig) noteSlow() {
	for _, setting := range [][2]string{{"slowlog-log-slower-than", "500"}, {"slowlog-max-len", "10000"}} {
		r.ok(r.c.ConfigSet(r.ctx, setting[0], setting[1]).Err())
	}
	r.ok(r.c.Do(r.ctx, "SLOWLOG", "RESET").Err())
}

// logSlow logs these runs.
func (r *rig) logSlow(t *testing.T) {
	t.Helper()
	entries := must.Get(r.c.SlowLogGet(r.ctx, 10_000).Result())(r.t)
	byScript := map[string][]time.Duration{}
	for _, e := range entries {
		name := e.Args[0]
		if len(e.Args) > 1 {
			name += " " + e.Args[1]
		}
		byScript[name] = append(byScript[name], e.Duration)
	}
	for name, took := range byScript {
		slices.Sort(took)
		t.Logf("%s: %d runs above 0.5 ms; median %s, nine tenths within %s, longest %s", name, len(took), took[len(took)/2], took[len(took)*9/10], took[len(took)-1])
	}
}

// TestCostOfLateSettlements: the outcomes of jobs of a bucket with two budgets come when nearly the whole window has passed, and each slice is
// charged. It prints what TestCostOfFullBudgets does.
func TestCostOfLateSettlements(t *testing.T) {
	if !redistest.Soak {
		t.Skip("it prints times: make soak")
	}
	const late, settled = 98, 64
	r := realRig(t)
	r.setTime(epoch)
	r.configure(settings{rateCount: 100_000, capacity: 100_000, inFlight: 100_000})
	r.setBudgets("", "tokens 2000000000 60000000;input 2000000000 61000000;", 100)
	r.claim(ask{}) // the pace begins
	r.noteSlow()
	var inFlight [][]lease
	for n := range 150 {
		ids, costs := make([]string, settled), map[string]int64{}
		for i := range ids {
			ids[i] = fmt.Sprint(n, "-", i)
			costs[ids[i]] = 100
		}
		r.putUnits("", costs, ids...)
		r.pass(600_000)
		jobs := r.claim(ask{want: settled, horizon: 200_000}).jobs
		if len(jobs) != settled {
			t.Fatalf("%d of %d jobs left", len(jobs), settled)
		}
		inFlight = append(inFlight, jobs)
		if n >= late {
			var ended []outcome
			for _, job := range inFlight[n-late] {
				ended = append(ended, outcome{lease: job, result: done, used: "input:20,output:30"})
			}
			for i, code := range r.settle(ended...) {
				must.Be(t, code, 1, "outcome %d", i)
			}
		}
	}
	r.logSlow(t)
}

// TestMemoryOfBudgets: flows with two budgets and ten departures each take 800 bytes for that, so that 100,000 of them take 80 MB.
func TestMemoryOfBudgets(t *testing.T) {
	t.Parallel()
	flows := 300
	if redistest.Soak {
		flows = 5_000
	}
	r := realRig(t)
	r.setTime(epoch)
	r.configureFlows(settings{rateCount: 100_000, capacity: 1_000_000, inFlight: 1_000_000}, flowSettings{maxFlows: 100_000})
	r.setBudgets("flow_", "tokens 2000000000 60000000;tokens 2000000000 86400000000;", 100)
	for n := range 10 {
		for f := range flows {
			id := fmt.Sprint(n, "-", f)
			r.putUnits(fmt.Sprint("customer-", f), map[string]int64{id: 2345}, id)
		}
		jobs, _ := r.drainUntil(32, 200_000)
		if len(jobs) != flows {
			t.Fatalf("%d of %d jobs left", len(jobs), flows)
		}
		for some := range slices.Chunk(jobs, 32) {
			var ended []outcome
			for _, job := range some {
				ended = append(ended, outcome{lease: job, result: done, used: "input:1000,output:1234"})
			}
			r.settle(ended...)
		}
		r.pass(5_500_000)
	}
	bytes := r.c.MemoryUsage(r.ctx, r.key("charges"), 0).Val()
	t.Logf("%d flows take %d bytes each", flows, bytes/int64(flows))
	if bytes > 800*int64(flows) {
		t.Errorf("%d flows take %d bytes each", flows, bytes/int64(flows))
	}
}
