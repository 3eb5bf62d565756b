package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// budgeted is a rig whose bucket, flow "f" or pool has a budget of 1000 tokens in 10 s, and the flow of its jobs.
func budgeted(t *testing.T, base *rig, kind string) (r *rig, flow string) {
	t.Helper()
	r = base.fresh(t, fmt.Sprint("b", nextClaim()))
	r.setTime(epoch)
	budgets := fmt.Sprintf("tokens 1000 %d;", 10*second)
	own := settings{rateCount: 1000, capacity: 10_000, inFlight: 10_000}
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
	return r, flow
}

// claimAny claims as programs do of a bucket with flows, or of one without.
func claimAny(r *rig, flow string) claimed {
	if flow != "" {
		return r.drain(ask{})
	}
	return r.claim(ask{})
}

// A receipt tells when the job leaves, by what the last jobs reserved: so do max_wait, and the estimate of the bucket.
func TestEstimatesCountBudgets(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, kind := range []string{"bucket", "flow", "pool"} {
			r, flow := budgeted(t, base, kind)
			costs, ids := map[string]int64{}, numbered(60)
			for _, id := range ids {
				costs[id] = 50
			}
			r.putUnits(flow, costs, ids...)
			var last answer
			told := int64(0)
			for r.now() < epoch+60*second {
				c := claimAny(r, flow)
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
					if a := r.enqueue(nil, entry{id: "hasty", units: "tokens:50", maxWait: fmt.Sprint(second)}.in(r, flow))[0]; a.code != lua.WaitsForBudget || !strings.Contains(a.budget, " "+kind+" tokens 1000 10000000 ") {
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

// What a job reserves itself counts in its receipt and its time: the next one that finds too little left does not leave at once, and in a
// bucket one behind it leaves after it.
func TestTheTimeOfALargeJobIsItsOwn(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, kind := range []string{"bucket", "flow", "pool", "pool, and the bucket says what a job reserves"} {
			scope, says, _ := strings.Cut(kind, ", ")
			r, flow := budgeted(t, base, scope)
			units := "tokens:900"
			if says != "" {
				units = ""
				r.hset("settings", "default_reservation", 900)
			}
			r.putUnits(flow, map[string]int64{"small": 200}, "small")
			var ended []outcome
			for _, job := range claimAny(r, flow).jobs {
				ended = append(ended, outcome{lease: job, result: done, used: "="})
			}
			must.Be(t, len(ended), 1, "%s: left", kind)
			r.settle(ended...)
			r.pass(4 * second)
			hasty := r.enqueue(nil, entry{id: "hasty", units: units, maxWait: fmt.Sprint(3 * second)}.in(r, flow))[0]
			told := r.enqueue(nil, entry{id: "large", units: units}.in(r, flow))[0]
			if hasty.code != 25 || told.position != 0 {
				t.Errorf("%s: the large job: %+v; one that may wait 3 s: %+v", kind, told, hasty)
			}
			claimAny(r, flow) // which notes that it waits
			if j := r.job("large"); j.instant < told.eta-second/10 || j.instant > told.eta+second/10 {
				t.Errorf("%s: the receipt of the large job says %d, its page %d", kind, told.eta, j.instant)
			}
			behind := r.enqueue(nil, entry{id: "behind", units: "tokens:200"}.in(r, flow))[0]
			if kind == "bucket" && behind.eta <= told.eta {
				t.Errorf("the job behind is told %d, the large one %d", behind.eta, told.eta)
			}
			for left := int64(0); left == 0; r.pass(second / 10) {
				for _, job := range claimAny(r, flow).jobs {
					if left = job.slot; job.id != "large" || left < told.eta-second || left > told.eta+second {
						t.Errorf("%s: %s leaves at %d, the large one was told %d", kind, job.id, left, told.eta)
					}
				}
				if r.now() > epoch+30*second {
					t.Fatalf("%s: the large job does not leave", kind)
				}
			}
		}
	})
}
