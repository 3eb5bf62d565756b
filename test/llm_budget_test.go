package test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// tokenLimit is what the providers of these tests allow in any window, which is a minute in a soak.
const tokenLimit = 90_000

func tokenWindow() time.Duration {
	if redistest.Soak {
		return time.Minute
	}
	return 10 * time.Second
}

// tokenBudgets is that limit as a setting.
func tokenBudgets() string {
	return fmt.Sprintf("budgets = [\"%d tokens/%s\"]\n", tokenLimit, tokenWindow())
}

// limited is a provider that refuses what is above the limit, and has a limit of requests too, if that is not 0.
func limited(s llmprovider.Settings, requests int64) *llmprovider.Provider {
	s.Limits = append(s.Limits, llmprovider.Limit{Unit: llmprovider.Tokens, Amount: tokenLimit, Window: tokenWindow()})
	if requests > 0 {
		s.Limits = append(s.Limits, llmprovider.Limit{Unit: llmprovider.Requests, Amount: requests, Window: tokenWindow()})
	}
	return llmprovider.New(s)
}

// What the n-th call says of its flow and group.
func sevenFlows(n int) string { return fmt.Sprintf(`,"flow":"f%d"`, n%7) }
func oneGroup(n int) string   { return sevenFlows(n) + `,"group":"g"` }
func oneFlow(int) string      { return `,"flow":"f"` }
func noFlow(int) string       { return "" }

const flowsOfJobs, groupsOfJobs = "[buckets.flow]\nkey = \"job\"\n", "[buckets.group]\nkey = \"job\"\n"

// budgetForm is a place of a budget: the buckets that it bounds, and what it is held to.
type budgetForm struct {
	models   []model
	fields   func(n int) string // of the n-th call
	requests int64              // limit of the provider too, 0 none
	used     float64            // of the budget, while jobs wait, at least
}

// budgetForms are all places of a budget; and a budget beside a quota that is as tight; and calls that take long and use half of what they
// reserve, at a provider that counts output as it comes.
func budgetForms() map[string]budgetForm {
	const near = tokenLimit / 2100 // the mean of tokensOf
	fast, slow := tokenWindow()/60, tokenWindow()/6
	half := llmprovider.Settings{API: llmprovider.Anthropic, CallTime: slow, UsedFrom: .5, UsedTo: .5}
	of := func(name, keys, tables string) []model {
		return []model{{name: name, keys: keys, tables: tables, provider: limited(llmprovider.Settings{CallTime: fast}, 0)}}
	}
	shared := limited(llmprovider.Settings{CallTime: fast}, 0)
	return map[string]budgetForm{
		"bucket": {models: of("bucket", tokenBudgets(), ""), fields: noFlow, used: .94},
		"flows":  {models: of("flows", tokenBudgets(), flowsOfJobs), fields: sevenFlows, used: .94},
		"flow":   {models: of("flow", "", flowsOfJobs+tokenBudgets()), fields: oneFlow, used: .94},
		"group":  {models: of("group", "", flowsOfJobs+groupsOfJobs+tokenBudgets()), fields: oneGroup, used: .94},
		"pool": {fields: noFlow, used: .94, models: []model{
			{name: "pool-a", keys: "pool = \"vendor\"\n", provider: shared}, {name: "pool-b", keys: "pool = \"vendor\"\n", provider: shared},
		}},
		"near the request limit": {fields: noFlow, requests: near, models: []model{{
			name: "near", keys: tokenBudgets() + fmt.Sprintf("quotas = [\"%d/%s\"]\n", near, tokenWindow()), provider: limited(llmprovider.Settings{CallTime: fast}, near),
		}}},
		"long calls": {fields: noFlow, used: .8, models: []model{{
			name: "slow", api: llmprovider.Anthropic, keys: tokenBudgets(), provider: limited(half, 0),
		}}},
	}
}

// TestTokenBudgets: calls of 200 to 4,000 tokens against 90,000, with three dispatchers, two producers and Redis 50 ms away. A dispatcher is
// killed on the way. The provider refuses no call, no window of it has more than the limit, and all calls are answered. In a soak the clock
// of Redis steps too, and most of the budget is used while jobs wait.
func TestTokenBudgets(t *testing.T) {
	harness.BesideOthers(t)
	calls := 100
	if redistest.Soak {
		calls = 500
	}
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) (fault string) {
		forms := budgetForms()
		plan := llmPlan{dispatchers: 3, pools: "[[pools]]\nname = \"vendor\"\nrate = \"100/s\"\n" + tokenBudgets()}
		step := func(time.Duration) {}
		if redistest.Soak {
			var clock *harness.Movable
			plan.server, clock = harness.StartMovable(t)
			step = clock.Set
		} else {
			plan.server = redistest.Start(t)
		}
		for _, form := range forms {
			plan.models = append(plan.models, form.models...)
		}
		s := startLLM(t, plan)
		for _, form := range forms {
			lines := make([][]string, len(form.models))
			for n := range calls {
				m := form.models[n%len(form.models)]
				maxTokens, fields := tokensOf(n)-inputTokens, form.fields(n)
				if m.api == llmprovider.Anthropic { // says itself what it reserves, or its bucket would learn to reserve half
					fields += fmt.Sprintf(`,"cost":{"input":%d,"output":%d}`, inputTokens, maxTokens)
				}
				lines[n%len(lines)] = append(lines[n%len(lines)], m.call(fmt.Sprintf("%s-%d", m.name, n), maxTokens, fields))
			}
			for i, m := range form.models {
				s.post(m.name, lines[i]...)
			}
		}
		arrived := func(part float64) func() bool {
			return func() bool { return len(forms["bucket"].models[0].provider.Log()) >= int(part*float64(calls)) }
		}
		most := time.Duration(calls*2100/tokenLimit+2) * tokenWindow()
		harness.Await(t, most, "a third is answered", arrived(1./3))
		s.dispatchers[0].Kill()
		harness.Await(t, most, "a half is answered", arrived(.5))
		step(5 * time.Second)
		s.dispatchers[0] = s.restart[0]()
		harness.Await(t, most, "two thirds are answered", arrived(2./3))
		step(0)
		s.awaitAnswered(most)
		for _, name := range slices.Sorted(maps.Keys(forms)) {
			fault = max(fault, judgeBudget(t, stall, name, forms[name]))
		}
		return fault
	})
}

// judgeBudget prints how a budget was used, and holds it to what is promised. It returns what the machine may be to blame for.
func judgeBudget(t *testing.T, stall *harness.StallWatch, name string, form budgetForm) (fault string) {
	t.Helper()
	log := form.models[0].provider.Log()
	limit := llmprovider.Limit{Unit: llmprovider.Tokens, Amount: tokenLimit, Window: tokenWindow()}
	first, last := log[0].At, log[len(log)-1].At // when the last one left, none waited any more
	used := log.Use(limit, first.Add(limit.Window), last)
	again := 0
	for _, times := range log.Answered() {
		again += times - 1
	}
	most, requests, refused := log.Most(llmprovider.Tokens, limit.Window), log.Most(llmprovider.Requests, limit.Window), len(log.Refused())
	t.Logf("%s: %d calls in %s; used %.1f %% of the budget, from the second window on %.1f %%; most in a window %d of %d tokens, %d requests; refused %d; answered again %d",
		name, len(log), last.Sub(first).Round(time.Second), 100*log.Use(limit, first, last), 100*used, most, tokenLimit, requests, refused, again)
	if redistest.Soak && used < form.used {
		t.Errorf("%s: %.1f %% of the budget are used while jobs wait, want at least %.0f %%", name, 100*used, 100*form.used)
	}
	if refused > 0 || most > tokenLimit || form.requests > 0 && requests > form.requests {
		return overWindow(t, stall, tokenWindow(), fmt.Sprintf("%s: %d calls were refused, and a window has %d tokens and %d requests", name, refused, most, requests))
	}
	return ""
}

// overWindow is a window that has too much. The window of a budget is longer by a 50th: only a machine that stood still for a good part of
// that can have brought together what left in time. Else the test fails at once.
func overWindow(t *testing.T, stall *harness.StallWatch, window time.Duration, fault string) string {
	t.Helper()
	if stall.SoFar() < window/200 {
		t.Error(fault)
	}
	return fault
}
