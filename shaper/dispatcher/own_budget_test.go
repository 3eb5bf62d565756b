package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// budgetsOf is a patch that gives a flow, or a group, budgets of its own.
func budgetsOf(t *testing.T, text string) operator.FlowPatch {
	t.Helper()
	var p operator.FlowPatch
	must.OK(t, p.Put(shaper.FlowBudgets, text))
	return p
}

// A job that reserves more of a budget than there is is refused at admission, by the budgets in force, whosever they are. An operator who
// raises the budget lets the next one in at once, also where the client knew the old one. Other jobs of the call get in.
func TestACostThatNeverFits(t *testing.T) {
	t.Parallel()
	const advice = ": reserve less, by a lower max_tokens for example, or raise the budget"
	budget, ctx := shaper.Budgets{rig.Rate("90000 tokens/m")}, t.Context()
	bucketTo := func(w *rig.World, budgets string) error {
		_, err := w.Client.Op.As("anna").Bucket("llm").Set(ctx, rig.MustPatch(t, "budgets", budgets))
		return err
	}
	for name, c := range map[string]struct {
		change func(b *shaper.Bucket)
		set    func(w *rig.World, budgets string) error // the budgets that are meant, where an operator may
		whose  string
	}{
		"bucket":             {func(b *shaper.Bucket) { b.Budgets = budget }, bucketTo, `bucket "llm"`},
		"bucket that got it": {func(*shaper.Bucket) {}, bucketTo, `bucket "llm"`},
		"flows":              {func(b *shaper.Bucket) { *b = rig.Flowing("llm", shaper.FlowKeyJob); b.Flow.Budgets = budget }, nil, `flow "f" of bucket "llm"`},
		"flow": {func(b *shaper.Bucket) { *b = rig.Flowing("llm", shaper.FlowKeyJob) }, func(w *rig.World, budgets string) error {
			_, err := w.Client.Op.As("anna").Bucket("llm").Flow("f").Set(ctx, budgetsOf(t, budgets))
			return err
		}, `flow "f" of bucket "llm"`},
		"groups": {func(b *shaper.Bucket) { *b = rig.Grouped("llm", 500); b.Group.Budgets = budget }, nil, `group "g" of bucket "llm"`},
		"group": {func(b *shaper.Bucket) { *b = rig.Grouped("llm", 500) }, func(w *rig.World, budgets string) error {
			_, err := w.Client.Op.As("anna").Bucket("llm").Group("g").Set(ctx, budgetsOf(t, budgets))
			return err
		}, `group "g" of bucket "llm"`},
		"pool": {func(b *shaper.Bucket) {
			b.Pool = &shaper.Pool{Name: "vendor", Rate: rig.PerSecond(500), Budgets: budget}
		}, func(w *rig.World, budgets string) error {
			_, err := w.Client.Op.As("anna").Pool("vendor").Set(ctx, rig.MustPatch(t, "budgets", budgets))
			return err
		}, `pool "vendor"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := rig.Bucket("llm", 500)
			c.change(&b)
			w := rig.NewWorld(t, b)
			must.OK(t, w.Client.JoinPools(ctx))
			jobs := 0
			enqueue := func(costs ...int64) []shaper.Receipt {
				t.Helper()
				var list []shaper.Job
				for _, cost := range costs {
					jobs++
					job := shaper.Job{Bucket: "llm", ID: fmt.Sprint("j", jobs), Payload: []byte("x"), Units: shaper.Units{shaper.UnitTokens: cost}}
					if b.Flow != nil {
						job.Flow = "f"
					}
					if b.Group != nil {
						job.Group = "g"
					}
					list = append(list, job)
				}
				receipts := must.Get(w.Client.Enqueue(ctx, list...))(t)
				return receipts
			}
			want := func(r shaper.Receipt, amount int64, budget string) {
				t.Helper()
				text := ""
				if budget != "" {
					text = fmt.Sprintf("the job reserves %d tokens, and %s has a budget of %s%s", amount, c.whose, budget, advice)
				}
				switch {
				case budget == "" && r.Refusal != nil:
					t.Errorf("%d tokens: %+v", amount, r.Refusal)
				case budget != "" && (r.Refusal == nil || r.Refusal.Reason != shaper.ReasonImpossible || r.Refusal.Detail != text):
					t.Errorf("%d tokens: %+v, want %q", amount, r.Refusal, text)
				}
			}
			if c.set != nil {
				must.OK(t, c.set(w, "90000 tokens/m"))
			}
			for i, r := range enqueue(120_000, 90_000, 90_001) {
				want(r, []int64{120_000, 90_000, 90_001}[i], []string{"90000 tokens/m", "", "90000 tokens/m"}[i])
			}
			if c.set == nil {
				return
			}
			for _, now := range []struct {
				budgets, refused string
			}{{"120000 tokens/m", ""}, {"1000000 tokens/d, 119999 tokens/m", "119999 tokens/m"}, {"none", ""}} {
				must.OK(t, c.set(w, now.budgets))
				want(enqueue(120_000)[0], 120_000, now.refused)
			}
		})
	}
}

// One flow has a budget of its own, smaller than that of all; another one has none. The provider counts for each.
func TestBudgetsOfOneFlow(t *testing.T) {
	t.Parallel()
	b := rig.Flowing("llm", shaper.FlowKeyJob)
	b.Rate, b.BudgetBurst = rig.PerSecond(500), 100
	b.Flow.Budgets = shaper.Budgets{rig.Rate("1000 tokens/s")}
	apis := map[string]*provider{}
	for flow, limit := range map[string]int64{"small": 300, "any": 1000, "free": 1 << 30} {
		apis[flow] = &provider{limit: limit, window: rig.Rate("1/s").Per}
	}
	var history checker.History
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		cost, _ := a.Reserved.Of(shaper.UnitTokens)
		if !apis[a.Flow].admit(a, cost) {
			return shaper.Dead("http_429", "")
		}
		history.Delivered(a.ID, a.Number, time.Now())
		return shaper.Done(200)
	})
	buckets := []shaper.Bucket{b}
	// In the time of a bubble: where a machine is so busy that Redis is late, slots move, and a window may have more.
	inBubble(t, worker, buckets, func(l *loops) {
		for flow, budgets := range map[string]string{"small": "300 tokens/s", "free": "none"} {
			own := must.Get(l.client.Op.As("anna").Bucket("llm").Flow(flow).Set(l.t.Context(), budgetsOf(l.t, budgets)))(l.t)
			must.Be(l.t, own.Budgets.String(), budgets, "budgets of %s", flow)
		}
		jobs := map[string]int{"small": 8, "any": 8, "free": 32}
		var all []shaper.Job
		for flow, n := range jobs {
			for i := range n {
				history.Admitted(fmt.Sprint(flow, i), time.Now())
				all = append(all, shaper.Job{Bucket: "llm", ID: fmt.Sprint(flow, i), Flow: flow, Payload: []byte("x"), Units: shaper.Units{shaper.UnitTokens: 150}})
			}
		}
		l.enqueue(all...)
		second := must.Get(New(Config{Redis: l.redis, Buckets: buckets, Workers: rig.Workers(buckets, worker)}))(l.t)
		ctx, leave := context.WithCancel(l.t.Context())
		ended := make(chan error)
		go func() { ended <- second.Run(ctx) }()
		l.run(20 * time.Second)
		leave()
		must.OK(l.t, <-ended)
		if result := history.Check(); result.Err() != nil || result.Extra > 0 {
			l.t.Errorf("%v: %s", result.Err(), result)
		}
		left, infos := l.redis.Exists(l.t.Context(), store.BucketKeys("llm").Flows()).Val(), must.Get(l.client.Op.BucketInfos(l.t.Context(), "llm"))(l.t)
		if left != 0 || infos[0].Unfinished != 0 || infos[0].InFlight != 0 || infos[0].Waiting != 0 {
			l.t.Errorf("left: %+v, %d keys", infos[0], left)
		}
		for flow, api := range apis {
			if api.refused > 0 || len(api.calls) != jobs[flow] {
				l.t.Errorf("flow %s: %d of %d answered, %d refused, most in a window %d", flow, len(api.calls), jobs[flow], api.refused, api.most)
			}
		}
		if most := apis["free"].most; most <= 1000 {
			l.t.Errorf("the flow without a budget had %d tokens in a window, as the others may have, of 4800", most)
		}
	})
}

// Budgets that cannot be: each is refused, and nothing is changed.
func TestOwnBudgetsThatAreNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"100/s":                             `requests are counted by quotas`,
		"0 tokens/s":                        `"0 tokens/s"`,
		"1 tokens/s, 2 tokens/s":            `have the same unit and window`,
		"much":                              `"much"`,
		"1 a/m, 1 b/m, 1 c/m, 1 d/m, 1 e/m": `5 budgets: want at most 4`,
	} {
		var p operator.FlowPatch
		if err := p.Put(shaper.FlowBudgets, text); err == nil || !strings.HasPrefix(err.Error(), "budgets: ") || !strings.Contains(err.Error(), want) || !p.IsZero() {
			t.Errorf("%q: %v", text, err)
		}
	}
	b := rig.Flowing("llm", shaper.FlowKeyJob)
	b.Batch = shaper.BatchSettings{MaxSize: 10, MaxBytes: 1 << 20}
	w := rig.NewWorld(t, b)
	flow := w.Client.Op.As("anna").Bucket("llm").Flow("f")
	if _, err := flow.Set(t.Context(), budgetsOf(t, "300 tokens/s")); !errors.As(err, new(*operator.InvalidChangeError)) || !strings.Contains(err.Error(), "batches") {
		t.Error(err)
	}
	if info, err := flow.Info(t.Context()); err != nil || !info.Own.IsZero() {
		t.Errorf("%+v, %v", info.Own, err)
	}
}
