package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// usage reads the use of the bucket "b" of yesterday, today and tomorrow, so that midnight may come in a test.
func usage(w *rig.World, query operator.UsageQuery) operator.Usage {
	w.T.Helper()
	query.From, query.To = time.Now().AddDate(0, 0, -1), time.Now().AddDate(0, 0, 1)
	found := must.Get(w.Client.Op.Bucket("b").Usage(w.T.Context(), query))(w.T)
	return found
}

// Each call that two dispatchers make is counted once by flow, caller and model, whatever replies of Redis are lost; with budgets and
// without them, in flows, groups and a pool.
func TestUseOverDispatchers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *shaper.Bucket){
		"plain":   func(*shaper.Bucket) {},
		"budgets": func(b *shaper.Bucket) { b.Budgets = shaper.Budgets{rig.Rate("100000 tokens/s")} },
		"flows": func(b *shaper.Bucket) {
			*b = rig.Flowing("b", shaper.FlowKeyJob)
			b.Rate = rig.PerSecond(500)
		},
		"groups": func(b *shaper.Bucket) {
			*b = rig.Grouped("b", 500)
			b.Budgets = shaper.Budgets{rig.Rate("100000 tokens/s")}
		},
		"pool": func(b *shaper.Bucket) { b.Pool = rig.PoolNamed("vendor") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := rig.Bucket("b", 500)
			change(&b)
			w := rig.NewWorld(t, b)
			worker := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
				outcome := w.Note(ctx, a)
				n, _ := strconv.Atoi(strings.TrimPrefix(a.ID, "j"))
				if want := shaper.CallerMark([]string{"anna", ""}[n%2]); a.Caller != want {
					t.Errorf("job %q comes from %q, want %q", a.ID, a.Caller, want)
				}
				model := "small"
				if string(a.Payload) == "2" {
					model = "large/x y"
				}
				outcome.Use = &shaper.Use{Model: model, Input: 100, Output: 10}
				return outcome
			})
			for range 2 {
				dispatch(w, worker, nil)
			}
			const jobs = 60
			for i := range jobs {
				job := shaper.Job{Bucket: "b", ID: fmt.Sprint("j", i), Caller: []string{"anna", ""}[i%2], Payload: []byte(fmt.Sprint(i % 3)), Units: shaper.Units{shaper.UnitTokens: 1}}
				if b.Flow != nil {
					job.Flow = fmt.Sprint("f", i%2)
				}
				if b.Group != nil {
					job.Group = "g"
				}
				receipts, err := w.Client.Enqueue(t.Context(), job)
				if err != nil || receipts[0].Refusal != nil {
					t.Fatalf("%+v, %v", receipts, err)
				}
				w.History.Admitted(job.ID, time.Now())
				if i%20 == 0 {
					w.Proxy.DropReply(lua.Settle.SHA() + "\r\n")
				}
			}
			w.Await(jobs)
			w.AwaitEmpty()
			w.WantClean()
			found := usage(w, operator.UsageQuery{By: []operator.UsageBy{operator.UsageByFlow, operator.UsageByCaller, operator.UsageByModel}})
			charged := int64(110 * jobs) // or what each job has reserved of budgets
			if len(b.Budgets) > 0 {
				charged = jobs
			}
			if found.Total != (operator.UsageSum{Calls: jobs, Input: 100 * jobs, Output: 10 * jobs, Charged: charged}) || len(found.Rows) != 4 {
				t.Errorf("%+v", found)
			}
			for _, row := range found.Rows {
				isAnna := row.Caller != nil && *row.Caller == shaper.CallerMark("anna")
				want := map[string]int64{"small": 20, "large/x y": 10}[*row.Model]
				if row.Calls != want || isAnna == (row.Caller == nil) || (row.Flow != nil) != (b.Flow != nil) || (row.Group != nil) != (b.Group != nil) ||
					row.Flow != nil && *row.Flow != map[bool]string{true: "f0", false: "f1"}[isAnna] || row.Group != nil && *row.Group != "g" {
					t.Errorf("%+v of %q, want %d calls", row, *row.Model, want)
				}
			}
		})
	}
}

// A job whose lease was lost counts for the attempt whose outcome counts.
func TestUseOfALateOutcome(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 500))
	first, let := make(chan string), make(chan struct{})
	stop := dispatch(w, shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		if a.Number > 1 {
			outcome := w.Note(ctx, a)
			outcome.Use = &shaper.Use{Model: "m", Input: 20, Output: 2}
			return outcome
		}
		first <- a.ID
		<-let
		return shaper.Outcome{Result: shaper.ResultDone, Signal: shaper.SignalAccepted, Use: &shaper.Use{Model: "m", Input: 1000, Output: 1000}}
	}), nil)
	w.Submit("j")
	takeLease(w, <-first)
	w.Await(1)
	w.AwaitEmpty()
	close(let)
	if err := stop(); err != nil { // waits for the first attempt, whose outcome comes late
		t.Error(err)
	}
	if found := usage(w, operator.UsageQuery{}); found.Total != (operator.UsageSum{Calls: 1, Input: 20, Output: 2, Charged: 22}) {
		t.Errorf("%+v", found)
	}
}

// A bucket whose outcomes name no model has no key for it, and its script gets no argument more. An attempt that was not sent used none.
func TestNoUse(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 500))
	dispatch(w, shaper.WorkerFunc(w.Note), nil)
	w.Enqueue(20)
	w.Await(20)
	w.AwaitEmpty()
	must.Equal(t, w.Server.Client().Exists(t.Context(), store.BucketKeys("b").Uses(time.Now())...).Val(), 0, "keys")
	d := must.Get(New(Config{Timeout: rig.Patience, Redis: w.Server.Client(), Buckets: []shaper.Bucket{w.Bucket}, Workers: rig.Workers([]shaper.Bucket{w.Bucket}, shaper.WorkerFunc(w.Note))}))(t)
	settler := newBucketLoop(d, d.store.Known("b"), t.Context()).settler
	used := &shaper.Use{Model: "m", Input: 1, Output: 2}
	for name, c := range map[string]struct {
		outcome shaper.Outcome
		charged string
		want    []any // what stands behind the job
	}{
		"no model":            {shaper.Done(200), "", nil},
		"budgets, no model":   {shaper.Done(200), "1 0 input:1", []any{"1 0 input:1 ="}},
		"a model":             {shaper.Outcome{Result: shaper.ResultDone, Use: used}, "", []any{"@1 m 1 2"}},
		"budgets and a model": {shaper.Outcome{Result: shaper.ResultDone, Use: used}, "1 0 input:1", []any{"1 0 input:1 =@1 m 1 2"}},
		"not sent":            {shaper.Outcome{Result: shaper.ResultReturned, Use: used}, "", nil},
	} {
		job := &leased{claim: "c", epoch: 1, claimedAt: 17, mark: "00000000000cn", charged: c.charged, departed: time.Now()}
		args, _, days := settler.callOf([]*settlement{settler.settlementOf(job, c.outcome)})
		const first = 5 + 1 // behind the head and one flow
		count := 1
		if c.want != nil {
			count = -1
		}
		if got := args[first+15+jobArgs:]; args[first] != count || !slices.Equal(got, c.want) || (fmt.Sprint(days) == "[19700101]") != strings.Contains(fmt.Sprint(c.want), "@") {
			t.Errorf("%s: %v of days %v, want %v", name, got, days, c.want)
		}
	}
}
