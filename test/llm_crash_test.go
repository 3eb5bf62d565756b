package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// crashModels are buckets with a budget at three places, whose calls take a part of the window. Their providers refuse nothing.
func crashModels(callTime time.Duration) ([]model, string) {
	of := func() *llmprovider.Provider { return llmprovider.New(llmprovider.Settings{CallTime: callTime}) }
	return []model{
		{name: "bucket", keys: tokenBudgets(), provider: of()},
		{name: "flows", tables: flowsOfJobs + tokenBudgets(), provider: of()},
		{name: "group", tables: flowsOfJobs + groupsOfJobs + tokenBudgets(), provider: of()},
		{name: "pooled", keys: "pool = \"vendor\"\n", provider: of()},
	}, "[[pools]]\nname = \"vendor\"\nrate = \"100/s\"\n" + tokenBudgets()
}

// postCrash enqueues calls of 200 to 4,000 tokens into each bucket.
func (s *llmSystem) postCrash(models []model, calls int) {
	for _, m := range models {
		fields := map[string]func(int) string{"flows": oneFlow, "group": oneGroup}[m.name]
		var lines []string
		for n := range calls {
			more := ""
			if fields != nil {
				more = fields(n)
			}
			lines = append(lines, m.call(fmt.Sprintf("%s-%d", m.name, n), tokensOf(n)-inputTokens, more))
		}
		s.post(m.name, lines...)
	}
}

// TestDispatchersDieWithCharges: kill -9 of all three dispatchers with calls in flight. Their leases are back within the lease and 5 s. What they
// charged stays charged until its window is over, because the provider may have counted it, and then it is gone. No window has more than the budget.
func TestDispatchersDieWithCharges(t *testing.T) {
	harness.OnlyInCI(t)
	harness.BesideOthers(t)
	const calls, lease, back = 30, 2 * time.Second, 5 * time.Second
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) (fault string) {
		models, pools := crashModels(tokenWindow() / 2)
		s := startLLM(t, llmPlan{models: models, pools: pools, dispatchers: 3, lease: lease, server: redistest.Start(t)})
		s.postCrash(models, calls)
		for _, m := range models {
			harness.Await(t, 2*tokenWindow(), "calls are under way in "+m.name, func() bool { return s.numbers(m.name).InFlight >= 6 })
		}
		for _, m := range models {
			s.operate("bucket", "pause", m.name)
		}
		for _, d := range s.dispatchers {
			d.Kill()
		}
		killed := time.Now()
		for i := range s.dispatchers {
			s.dispatchers[i] = s.restart[i]()
		}
		for _, m := range models {
			harness.Await(t, lease+back, "the leases are back in "+m.name, func() bool { return s.numbers(m.name).InFlight == 0 })
			took := time.Since(killed)
			log := m.provider.Log()
			charged, shown := s.charged(m.name)
			within := log.Sum(llmprovider.Tokens, time.Now().Add(-tokenWindow()), time.Now())
			t.Logf("%s: %d calls had left; the leases were back after %s; then the provider had %d tokens in its window, and charged were %d (%t)",
				m.name, len(log), took.Round(time.Millisecond), within, charged, shown)
			if took > lease+back+stall.Cost() {
				t.Errorf("%s: the leases were back after %s, want %s", m.name, took, lease+back)
			}
			if shown && charged < within {
				t.Errorf("%s: %d tokens are charged, of %d that the provider has counted", m.name, charged, within)
			}
		}
		<-time.After(time.Until(killed.Add(tokenWindow() * 104 / 100)))
		for _, m := range models {
			if charged, _ := s.charged(m.name); charged != 0 {
				t.Errorf("%s: %d tokens are charged after the window of the last call", m.name, charged)
			}
			s.operate("bucket", "resume", m.name)
		}
		s.awaitAnswered(5 * tokenWindow())
		for _, m := range models {
			if most := m.provider.Log().Most(llmprovider.Tokens, tokenWindow()); most > tokenLimit {
				fault = overWindow(t, stall, tokenWindow(), fmt.Sprintf("%s: a window has %d of %d tokens", m.name, most, tokenLimit))
			}
		}
		return fault
	})
}

// charged is what is charged to the budget that bounds a bucket of crashModels. Those of flows and groups are not shown.
func (s *llmSystem) charged(bucket string) (charged int64, shown bool) {
	s.t.Helper()
	path, shown := map[string]string{"bucket": "/v1/buckets/bucket", "pooled": "/v1/pools/vendor"}[bucket]
	if !shown {
		return 0, false
	}
	n := s.numbersAt(path)
	if len(n.Budgets) != 1 {
		s.t.Fatalf("%s shows the budgets %+v", path, n.Budgets)
	}
	return n.Budgets[0].Charged, true
}

// TestRedisDiesWithCharges: kill -9 of Redis, whose append-only file is synced every second, and the last second of that file is lost with it, as
// it may be in a power failure. Without what left in lost writes, no window has more than the budget; and no job is lost.
func TestRedisDiesWithCharges(t *testing.T) {
	harness.OnlyInCI(t)
	harness.BesideOthers(t)
	const lost, kills = time.Second, 2
	calls := 60
	if redistest.Soak {
		calls = 150
	}
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) (fault string) {
		models, pools := crashModels(tokenWindow() / 20)
		server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
		s := startLLM(t, llmPlan{models: models, pools: pools, dispatchers: 3, server: server})
		s.postCrash(models, calls)
		var gone []span
		for kill := range kills {
			harness.Await(t, 3*tokenWindow(), "calls leave", func() bool { return len(models[0].provider.Log()) >= (kill+1)*calls/3 })
			gone = append(gone, loseWrites(t, server, lost))
		}
		s.awaitAnswered(6 * tokenWindow())
		for _, m := range models {
			log := m.provider.Log()
			kept := log.Only(func(c *llmprovider.Call) bool {
				return !slices.ContainsFunc(gone, func(g span) bool { return g.has(c.At) })
			})
			most, without := log.Most(llmprovider.Tokens, tokenWindow()), kept.Most(llmprovider.Tokens, tokenWindow())
			t.Logf("%s: %d calls; most in a window %d of %d tokens, %d without the %d calls that left in lost writes",
				m.name, len(log), most, tokenLimit, without, len(log)-len(kept))
			if without > tokenLimit {
				fault = overWindow(t, stall, tokenWindow(), fmt.Sprintf("%s: a window has %d of %d tokens without what left in lost writes", m.name, without, tokenLimit))
			}
		}
		return fault
	})
}

// span is from an instant until another one.
type span struct{ from, until time.Time }

func (s span) has(at time.Time) bool { return !at.Before(s.from) && at.Before(s.until) }

// loseWrites kills a Redis and starts it again without what it wrote for so long before. It returns when the departures were of which it
// may know nothing: a slot that was claimed in that time may lie behind the kill.
func loseWrites(t *testing.T, server *redistest.Server, lost time.Duration) span {
	t.Helper()
	const ahead = harness.PermitTTL + 160*time.Millisecond // a horizon of claims
	files, err := filepath.Glob(filepath.Join(server.Dir(), "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) != 1 {
		t.Fatalf("append-only files: %v, %v", files, err)
	}
	from := time.Now()
	file, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(lost)
	server.Kill()
	until := time.Now().Add(ahead)
	if err := os.Truncate(files[0], file.Size()); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	return span{from, until}
}
