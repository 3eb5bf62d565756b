package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// A budget is full 2 s after its two jobs have left. The clock of Redis steps forwards, and one of the two ends before a claim tells the
// step, as happens in each dispatcher with jobs in flight. Nothing leaves: only 2 s have passed. The step may be longer than keys are kept
// beyond the window of a budget.
func TestASettlementBeforeAStepIsTold(t *testing.T) {
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, kind := range []string{"bucket", "pool"} {
			for _, step := range []int64{9 * second, 3600 * second} {
				for _, settles := range []bool{false, true} {
					name := fmt.Sprint("b", nextClaim())
					base.setTime(epoch)
					var b *rig
					budgets := fmt.Sprintf("tokens 100 %d;", 10*second)
					if kind == "pool" {
						b = base.pooled(t, name, name+".0", 1, settings{rateCount: 1000})
						b.configurePool(poolSettings{rateCount: 1000})
						b.ok(b.c.HSet(b.ctx, b.poolKey("conf"), "budgets", budgets, "budget_burst", 100).Err())
					} else {
						b = base.fresh(t, name)
						b.configure(settings{rateCount: 1000})
						b.setBudgets("", budgets, 100)
					}
					b.putUnits("", map[string]int64{"a": 50, "b": 50, "c": 50, "d": 50}, "a", "b", "c", "d")
					c := b.claim(ask{})
					must.Be(t, c.ids(), "a b", "left")
					b.pass(2 * second)
					base.setTime(base.now() + step)
					if settles {
						b.settle(outcome{lease: c.jobs[0], result: done, used: "="})
					}
					if c := b.claim(ask{stepped: step}); c.ids() != "" {
						t.Errorf("%s: 2 s after the budget was filled, and a step by %d s, %q left (a job ended before the step was told: %t)", kind, step/second, c.ids(), settles)
					}
				}
			}
		}
	})
}

// A second after all that a budget, or a quota, allows has left the clock of Redis steps forwards, and a dispatcher asks that has not seen it.
// It is handed out nothing and nothing is written, whatever the step: the next one, which is told, finds everything as it was.
func TestAnUnexpectedTimeHandsOutNothing(t *testing.T) {
	const budgets, quota = "tokens 100 10000000;", "2 10000000;"
	own := settings{rateCount: 1000}
	flow := map[string]string{"flow": "f", "flow's quota": "f", "group": path("g", "f")}
	limits := map[string]func(r *rig){
		"bucket": func(r *rig) {
			r.configure(own)
			r.setBudgets("", budgets, 100)
		},
		"quota": func(r *rig) {
			r.configure(own)
			r.obeys("quotas", quota)
		},
		"flow": func(r *rig) {
			r.configureFlows(own, flowSettings{})
			r.setBudgets("flow_", budgets, 100)
		},
		"flow's quota": func(r *rig) { r.configureFlows(own, flowSettings{quotas: quota}) },
		"group": func(r *rig) {
			r.configureGroups(own, flowSettings{}, flowSettings{})
			r.setBudgets("group_", budgets, 100)
		},
		"pool": func(r *rig) {
			r.pool = r.name + "p"
			r.configure(own)
			r.configurePool(poolSettings{rateCount: 1000})
			r.ok(r.c.HSet(r.ctx, r.poolKey("conf"), "budgets", budgets, "budget_burst", 100).Err())
		},
	}
	onBoth(t, func(t *testing.T, base *rig) {
		for kind, limit := range limits {
			for _, step := range []int64{3 * second, 3600 * second} {
				r := base.fresh(t, fmt.Sprint("b", nextClaim()))
				r.setTime(epoch)
				limit(r)
				r.putUnits(flow[kind], map[string]int64{"a": 50, "b": 50, "c": 50, "d": 50}, "a", "b", "c", "d")
				must.Be(t, r.claimOrDrain(ask{}).ids(), "a b", "%s: left", kind)
				wants := func(when, ids string, a ask) {
					t.Helper()
					must.Equal(t, r.claimOrDrain(a).ids(), ids, "%s, a step by %d s, %s: left", kind, step/second, when)
				}
				r.pass(second)
				var turn reserved
				if r.hasFlows {
					r.claimOrDrain(ask{}) // its turn comes when the limit lets it go
					turn = reserved{flows: []string{flow[kind]}, turns: []any{flow[kind], r.now()}}
					if r.hasGroups {
						turn.groups, turn.groupTurns = []string{"g"}, []any{"g", r.now()}
					}
				}
				expected := r.now() + second
				written := func() string {
					pace := r.hash("pace")
					charges := r.hash("charges")
					return fmt.Sprint(pace, charges)
				}
				before := written()
				r.setTime(r.now() + step)
				r.expected = expected
				wants("unexpected", "", ask{expected: expected})
				if r.hasFlows { // it was its turn before the step
					must.Equal(t, r.claimFlows(ask{expected: expected}, turn).ids(), "", "%s, a step by %d s: left at a turn of before", kind, step/second)
				}
				if after := written(); after != before {
					t.Errorf("%s, a step by %d s: a claim of an unexpected time has written: %s, before %s", kind, step/second, after, before)
				}
				r.expected = 0
				wants("told", "", ask{stepped: step})
				r.pass(8 * second)
				wants("9 s after they left", "", ask{})
				r.pass(2 * second)
				wants("11 s after they left", "c d", ask{})
			}
		}
	})
}

// A dispatcher that asks for the first time, where nobody has asked for a while, is to wake the others and to ask later. Nothing is handed
// out or written until then. Where somebody has just asked, or nobody ever has, it is told what there is.
func TestTheFirstQuestionWhereNobodyAsked(t *testing.T) {
	const first, later = -1, -2
	onBothInCI(t, func(t *testing.T, base *rig) {
		for _, flow := range []string{"", "f"} {
			r := base.fresh(t, fmt.Sprint("b", nextClaim()))
			r.setTime(epoch)
			if flow == "" {
				r.configure(settings{rateCount: 1000})
			} else {
				r.configureFlows(settings{rateCount: 1000}, flowSettings{})
			}
			r.putUnits(flow, map[string]int64{"a": 1, "b": 1, "c": 1}, "a", "b", "c")
			asks := func(ids string, isLater bool) {
				t.Helper()
				r.expected = first
				c := r.claimOrDrain(ask{want: 1, expected: first})
				r.expected = 0
				if c.ids() != ids || (c.next == later) != isLater {
					t.Errorf("flow %q: %q left, next %d", flow, c.ids(), c.next)
				}
			}
			asks("a", false)
			r.pass(100_000)
			asks("b", false)
			r.pass(second)
			clock := r.field("pace", "clock")
			asks("", true)
			if after := r.field("pace", "clock"); after != clock {
				t.Errorf("flow %q: the engine's clock was %s and is %s", flow, clock, after)
			}
			must.Equal(t, r.claimOrDrain(ask{want: 1}).ids(), "c", "flow %q: left", flow)
		}
	})
}
