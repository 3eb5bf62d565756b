package operator_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
)

// A flow without jobs whose budget is used up is shown with it, and so is its group. A job that may not wait is refused with the budget that
// holds it, whosever it is, and not with the jobs ahead of it.
func TestUsedUpBudgetsAreShown(t *testing.T) {
	t.Parallel()
	budgets := shaper.Budgets{rig.Rate("20 tokens/d"), rig.Rate("1000 tokens/m")}
	for name, c := range map[string]struct {
		bucket          func(*shaper.Bucket)
		own             string // the flow's
		inFlow, inGroup bool
		whose           string
		jobs            int
		reserves        int64
		want            string
		charged, free   int64
	}{
		"flow":       {bucket: func(b *shaper.Bucket) { b.Flow.Budgets = budgets }, inFlow: true, want: `the budget of 20 tokens/d of flow "f" of bucket "b" is used up`, jobs: 2, charged: 20},
		"own budget": {own: budgets.String(), inFlow: true, want: `the budget of 20 tokens/d of flow "f" of bucket "b" is used up`, jobs: 2, charged: 20},
		"group":      {bucket: func(b *shaper.Bucket) { b.Group.Budgets = budgets }, inGroup: true, want: `the budget of 20 tokens/d of group "g" of bucket "b" is used up`, jobs: 2, charged: 20},
		"bucket":     {bucket: func(b *shaper.Bucket) { b.Budgets = budgets }, want: `the budget of 20 tokens/d of bucket "b" is used up`, jobs: 2},
		"pool": {bucket: func(b *shaper.Bucket) {
			b.Pool = &shaper.Pool{Name: "p", Rate: rig.PerSecond(100), Burst: 1, Budgets: budgets}
		}, jobs: 2,
			want: `the budget of 20 tokens/d of pool "p" is used up`},
		"too little": {bucket: func(b *shaper.Bucket) { b.Flow.Budgets = budgets }, inFlow: true, jobs: 1, reserves: 11, charged: 10, free: 10,
			want: `the budget of 20 tokens/d of flow "f" of bucket "b" has 10 left, and the job reserves 11`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := judge(t, c.bucket)
				bucket := j.op.As("anna").Bucket("b")
				flow := bucket.Group("g").Flow("f")
				if c.own != "" {
					var patch operator.FlowPatch
					must(t, patch.Put(shaper.FlowBudgets, c.own))
					_, err := flow.Set(t.Context(), patch)
					must(t, err)
				}
				j.enqueue(c.jobs)
				pass(3 * time.Minute)
				job := shaper.Job{Bucket: "b", ID: "hasty", Group: "g", Flow: "f", Payload: []byte("x"), Units: shaper.Units{"tokens": max(c.reserves, 10)}, MaxWait: 2 * time.Second}
				receipts, err := j.client.Enqueue(t.Context(), job)
				must(t, err)
				refused := receipts[0].Refusal
				if refused == nil || refused.Reason != shaper.ReasonWaitTooLong || !strings.HasPrefix(refused.Detail, c.want+", and the job would have to wait for more than 2s: retry in 2") {
					t.Errorf("refused with %+v, want %q", refused, c.want)
				}
				ofFlow, err := flow.Info(t.Context())
				must(t, err)
				ofGroup, err := bucket.Group("g").Info(t.Context())
				must(t, err)
				for _, part := range []struct {
					name string
					of   bool
					seen []shaper.BudgetUse
				}{{"flow", c.inFlow, ofFlow.Budgets}, {"group", c.inGroup, ofGroup.Budgets}} {
					switch {
					case !part.of && len(part.seen) != 0:
						t.Errorf("%s has budgets %+v", part.name, part.seen)
					case part.of && (len(part.seen) != 2 || part.seen[0].Budget != budgets[0] || part.seen[0].Charged != c.charged || part.seen[0].Free() != c.free ||
						part.seen[0].Frees.IsZero() != (c.free > 0) || part.seen[1].Charged != 0):
						t.Errorf("%s has budgets %+v", part.name, part.seen)
					}
				}
				if ofFlow.Known != (c.inFlow || c.own != "") || ofGroup.Known != c.inGroup && !ofFlow.Known {
					t.Errorf("known: flow %t, group %t", ofFlow.Known, ofGroup.Known)
				}
				j.kill() // or it would look for work for a day
				pass(25 * time.Hour)
				if ofFlow, err = flow.Info(t.Context()); err != nil || ofFlow.Known != (c.own != "") || c.inFlow && (len(ofFlow.Budgets) != 2 || ofFlow.Budgets[0].Charged != 0) {
					t.Errorf("a day later: %+v, %v", ofFlow, err)
				}
			})
		})
	}
}
