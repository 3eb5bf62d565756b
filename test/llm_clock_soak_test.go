//go:build soak

package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/test/harness"
)

// TestTokenBudgetsWhileTheClockSteps: the clock of Redis steps forwards, by less than a window and by an hour, and back, while the calls of three
// dispatchers leave and end. Whether a budget is spread or not, and of whatever it is, no window has more than that.
func TestTokenBudgetsWhileTheClockSteps(t *testing.T) {
	const calls, budget, limit, window = 150, "budgets = [\"90000 tokens/10s\"]\n", 90_000, 10 * time.Second
	for _, step := range []time.Duration{3 * time.Second, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) (fault string) {
				server, clock := harness.StartMovable(t)
				p := llmPlan{dispatchers: 3, server: server}
				fields := map[string]func(int) string{}
				for name, burst := range map[string]string{"spread": "", "whole": "budget_burst = \"100%\"\n"} {
					add := func(kind, keys, tables string, of func(int) string) {
						name := kind + "-" + name
						fields[name] = of
						p.models = append(p.models, model{
							name: name, keys: keys + burst, tables: tables, provider: llmprovider.New(llmprovider.Settings{CallTime: window / 60}),
						})
					}
					add("bucket", budget, "", noFlow)
					add("flow", "", flowsOfJobs+budget, oneFlow)
					add("group", "", flowsOfJobs+groupsOfJobs+budget, oneGroup)
					p.pools += fmt.Sprintf("[[pools]]\nname = %q\nrate = \"100/s\"\n", name) + budget + burst
					add("pool", fmt.Sprintf("pool = %q\n", name), "", noFlow)
				}
				s := startLLM(t, p)
				for _, m := range p.models {
					var lines []string
					for n := range calls {
						lines = append(lines, m.call(fmt.Sprintf("%s-%d", m.name, n), tokensOf(n)-inputTokens, fields[m.name](n)))
					}
					s.post(m.name, lines...)
				}
				for _, to := range []time.Duration{step, 0} {
					<-time.After(window * 12 / 10)
					clock.Set(to)
				}
				s.awaitAnswered(6 * window)
				for _, m := range p.models {
					log := m.provider.Log()
					most := log.Most(llmprovider.Tokens, window)
					t.Logf("%s: %d calls in %s; most in a window %d of %d tokens", m.name, len(log), log[len(log)-1].At.Sub(log[0].At).Round(time.Second), most, limit)
					if most > limit {
						fault = overWindow(t, stall, window, fmt.Sprintf("%s: a window has %d of %d tokens", m.name, most, limit))
					}
				}
				return fault
			})
		})
	}
}
