package operator_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
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
				j := newVerdictRig(t, c.bucket)
				bucket := j.op.As("anna").Bucket("b")
				flow := bucket.Group("g").Flow("f")
				if c.own != "" {
					var patch operator.FlowPatch
					must.OK(t, patch.Put(shaper.FlowBudgets, c.own))
					must.Get(flow.Set(t.Context(), patch))(t)
				}
				j.enqueue(c.jobs)
				pass(3 * time.Minute)
				job := shaper.Job{Bucket: "b", ID: "hasty", Group: "g", Flow: "f", Payload: []byte("x"), Units: shaper.Units{"tokens": max(c.reserves, 10)}, MaxWait: 2 * time.Second}
				receipts := must.Get(j.client.Enqueue(t.Context(), job))(t)
				refused := receipts[0].Refusal
				if refused == nil || refused.Reason != shaper.ReasonWaitTooLong || !strings.HasPrefix(refused.Detail, c.want+", and the job would have to wait for more than 2s: retry in 2") {
					t.Errorf("refused with %+v, want %q", refused, c.want)
				}
				ofFlow := must.Get(flow.Info(t.Context()))(t)
				ofGroup, err := bucket.Group("g").Info(t.Context())
				must.OK(t, err)
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

// A flow whose quota is used up is shown with it, also once it has no jobs, and so is its group: used, left, and when the next departure goes.
func TestUsedUpQuotasAreShown(t *testing.T) {
	t.Parallel()
	quotas := []admission.Rate{rig.Rate("2/h"), rig.Rate("10/d")}
	for name, c := range map[string]struct {
		bucket          func(*shaper.Bucket)
		own             string // the flow's
		inFlow, inGroup bool
	}{
		"flow":      {bucket: func(b *shaper.Bucket) { b.Flow.Quotas = quotas }, inFlow: true},
		"own quota": {own: "2/h, 10/d", inFlow: true},
		"group":     {bucket: func(b *shaper.Bucket) { b.Group.Quotas = quotas }, inGroup: true},
		"exempt":    {bucket: func(b *shaper.Bucket) { b.Flow.Quotas = quotas }, own: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := newVerdictRig(t, c.bucket)
				bucket := j.op.As("anna").Bucket("b")
				flow := bucket.Group("g").Flow("f")
				if c.own != "" {
					var patch operator.FlowPatch
					must.OK(t, patch.Put(shaper.FlowQuotas, c.own))
					must.Get(flow.Set(t.Context(), patch))(t)
				}
				j.enqueue(2)
				pass(time.Minute)
				var flows []operator.FlowInfo
				for cursor, again := "", true; again; again = cursor != "" {
					some, next, err := bucket.Flows(t.Context(), cursor, 10)
					must.OK(t, err)
					flows, cursor = append(flows, some...), next
				}
				ofFlow := must.Get(flow.Info(t.Context()))(t)
				ofGroup := must.Get(bucket.Group("g").Info(t.Context()))(t)
				for _, part := range []struct {
					name string
					of   bool
					seen operator.PartInfo
				}{{"flow", c.inFlow, ofFlow.PartInfo}, {"group", c.inGroup, ofGroup.PartInfo}} {
					switch q := part.seen.Quotas; {
					case !part.of && len(q) != 0:
						t.Errorf("%s has quotas %+v", part.name, q)
					case part.of && (len(q) != 2 || q[0].Quota != quotas[0] || q[0].Used != 2 || q[0].Left() != 0 || q[1].Used != 2 || q[1].Left() != 8 || !q[1].Frees.IsZero() ||
						q[0].Frees.Before(time.Now().Add(50*time.Minute)) || q[0].Frees.After(time.Now().Add(time.Hour)) || !part.seen.Known):
						t.Errorf("%s has quotas %+v, known: %t", part.name, q, part.seen.Known)
					}
				}
				if c.own != "" && (len(flows) == 0 || len(flows[0].Quotas) != len(ofFlow.Quotas)) {
					t.Errorf("the list has %+v", flows)
				}
			})
		})
	}
}
