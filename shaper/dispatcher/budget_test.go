package dispatcher

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// provider is an API with a limit of tokens in any window. It counts what a call may use at its slot, as if none came late, and refuses one
// that is too much.
type provider struct {
	limit  int64
	window time.Duration

	mu      sync.Mutex
	calls   []call
	refused int
	most    int64 // in a window
}

type call struct {
	at   time.Time
	cost int64
}

// admit takes a call, or refuses it. Calls may come in another order than that of their slots.
func (p *provider) admit(a *shaper.Attempt, cost int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := append(slices.Clone(p.calls), call{a.Slot(), cost})
	most := int64(0) // in a window that begins with a call
	for _, first := range all {
		sum := int64(0)
		for _, c := range all {
			if since := c.at.Sub(first.at); since >= 0 && since < p.window {
				sum += c.cost
			}
		}
		most = max(most, sum)
	}
	if most > p.limit {
		p.refused++
		return false
	}
	p.calls, p.most = all, most
	return true
}

// Three dispatchers share the budgets of a bucket, of its flows and groups, and of a pool: the provider, which counts what a call reserves
// when it comes, refuses none of them. Half of what is reserved is given back after the call where the provider counts what was used.
func TestBudgetsOverDispatchers(t *testing.T) {
	t.Parallel()
	budget := rig.Rate("3000 tokens/2s")
	for name, change := range map[string]func(b *shaper.Bucket){
		"bucket": func(b *shaper.Bucket) { b.Budgets = shaper.Budgets{budget} },
		"flow": func(b *shaper.Bucket) {
			*b = rig.Flowing(b.Name, shaper.FlowKeyJob)
			b.Rate = rig.PerSecond(500)
			b.Flow.Budgets = shaper.Budgets{budget}
		},
		"group": func(b *shaper.Bucket) { *b = rig.Grouped(b.Name, 500); b.Group.Budgets = shaper.Budgets{budget} },
		"pool": func(b *shaper.Bucket) {
			b.Pool = &shaper.Pool{Name: "vendor", Rate: rig.PerSecond(500), Budgets: shaper.Budgets{budget}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := rig.Bucket("llm", 500)
			change(&b)
			w := rig.NewWorld(t, b)
			api := &provider{limit: budget.Count, window: budget.Per}
			var reserved sync.Map
			worker := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
				cost, _ := a.Reserved.Of(shaper.UnitTokens)
				if want, _ := reserved.Load(a.ID); want != cost {
					t.Errorf("job %s reserves %d, want %v", a.ID, cost, want)
				}
				if !api.admit(a, cost) {
					return shaper.Outcome{Result: shaper.ResultRetry, Reason: "http_429", Status: 429, Signal: shaper.SignalThrottled}
				}
				return w.Note(ctx, a)
			})
			for range 3 {
				dispatch(w, worker, nil)
			}
			const jobs = 45
			for i := range jobs {
				cost := 20 + rand.Int64N(250)
				id := fmt.Sprint("j", i)
				reserved.Store(id, cost)
				job := shaper.Job{Bucket: b.Name, ID: id, Payload: []byte("x"), Units: shaper.Units{shaper.UnitInput: 20, shaper.UnitOutput: cost - 20}}
				if b.Flow != nil {
					job.Flow = "f"
				}
				if b.Group != nil {
					job.Flow, job.Group = fmt.Sprint("f", i%3), "g"
				}
				receipts, err := w.Client.Enqueue(t.Context(), job)
				if err != nil || receipts[0].Refusal != nil {
					t.Fatalf("%+v, %v", receipts, err)
				}
				w.History.Admitted(id, time.Now())
			}
			w.Await(jobs)
			w.AwaitEmpty()
			w.WantClean()
			if api.refused > 0 || api.most > budget.Count {
				t.Errorf("the provider refused %d calls; most in a window %d of %d", api.refused, api.most, budget.Count)
			}
		})
	}
}

// Who waits for a budget is told why, and until when.
func TestWhyAJobWaitsForABudget(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("llm", 500)
	b.Budgets, b.BudgetBurst = shaper.Budgets{rig.Rate("1000 tokens/h")}, 100
	w := rig.NewWorld(t, b)
	units := shaper.Units{shaper.UnitTokens: 600}
	for _, id := range []string{"first", "second"} {
		if receipts, err := w.Client.Enqueue(t.Context(), shaper.Job{Bucket: "llm", ID: id, Payload: []byte("x"), Units: units}); err != nil || receipts[0].Refusal != nil {
			t.Fatalf("%+v, %v", receipts, err)
		}
	}
	dispatch(w, shaper.WorkerFunc(w.Note), nil)
	w.Await(1)
	job := w.Job("second")
	if !slices.Contains(job.BlockedBy(), shaper.Blocker{Scope: shaper.ScopeBucket, Reason: shaper.BlockBudget}) ||
		!strings.Contains(job.Why(), `waits for the budget of 1000 tokens/h of bucket "llm": reserves 600, 400 are free; it may leave at `) {
		t.Errorf("%v: %s", job.BlockedBy(), job.Why())
	}
	use := w.Info().Budgets
	if len(use) != 1 || use[0].Charged != 600 || use[0].Free() != 400 || !use[0].Frees.After(time.Now().Add(59*time.Minute)) {
		t.Errorf("%+v", use)
	}
}
