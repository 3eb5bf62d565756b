package scripts_test

import (
	"fmt"
	"testing"
)

// A budget is full 2 s after its two jobs have left. The clock of Redis steps forwards, and one of the two ends before a claim tells the
// step, as happens in each dispatcher with jobs in flight. Nothing leaves: only 2 s have passed. The step may be longer than keys are kept
// beyond the window of a budget.
func TestASettlementBeforeAStepIsTold(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, base *rig) {
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
					if c.ids() != "a b" {
						t.Fatalf("%s left", c.ids())
					}
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
