package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestProviderFaults: while a provider has no money for the account, is overloaded, or names a time to wait in one of the ways that providers
// have, jobs wait: they spend no attempt, although they have one only, and all are delivered once the fault is over. A hold that lasts as long as
// people need is ended by them.
func TestProviderFaults(t *testing.T) {
	harness.OnlyInCI(t)
	harness.BesideOthers(t)
	const calls = 8
	short := 300 * time.Millisecond
	faults := []struct {
		name     string
		fault    llmprovider.Fault
		api      llmprovider.API
		place    string
		released bool // the hold lasts for an hour, so it is released
	}{
		{"quota", llmprovider.InsufficientQuota(), llmprovider.OpenAI, "bucket", true},
		{"spend-cap", llmprovider.SpendCap(), llmprovider.Anthropic, "flows", false},
		{"billing", llmprovider.BillingError(), llmprovider.Anthropic, "bucket", false},
		{"overloaded", llmprovider.Overloaded(0), llmprovider.Anthropic, "group", false},
		{"overloaded-timed", llmprovider.Overloaded(short), llmprovider.Anthropic, "bucket", false},
		{"milliseconds", llmprovider.RetryAfterMs(short), llmprovider.OpenAI, "flows", false},
		{"retry-info", llmprovider.RetryInfo(short), llmprovider.OpenAI, "pool", false},
	}
	places := map[string]struct {
		keys, tables string
		fields       func(n int) string
	}{
		"bucket": {tokenBudgets(), "", noFlow},
		"flows":  {"adapt.scope = \"flow\"\n", flowsOfJobs + tokenBudgets(), sevenFlows},
		"group":  {"", flowsOfJobs + groupsOfJobs + tokenBudgets(), oneGroup},
		"pool":   {"pool = \"vendor\"\n", "", noFlow},
	}
	var models []model
	for _, f := range faults {
		provider, place := limited(llmprovider.Settings{API: f.api}, 0), places[f.place]
		provider.Fail(f.fault)
		m := model{name: f.name, api: f.api, provider: provider, keys: place.keys, tables: place.tables, retry: "max_attempts = 1\n"}
		if !f.released {
			m.keys += "adapt.max_hold = \"1s\"\n"
		}
		models = append(models, m)
	}
	pools := "[[pools]]\nname = \"vendor\"\nrate = \"100/s\"\n" + tokenBudgets()
	s := startLLM(t, llmPlan{models: models, pools: pools, dispatchers: 3, server: redistest.Start(t)})
	for i, m := range models {
		var lines []string
		for n := range calls {
			lines = append(lines, m.call(fmt.Sprintf("%s-%d", m.name, n), 100, places[faults[i].place].fields(n)))
		}
		s.post(m.name, lines...)
	}
	for i, m := range models {
		least := calls + 1 // so that one has come twice
		if faults[i].released {
			least = 1
		}
		harness.Await(t, 30*time.Second, "calls of "+m.name+" are refused", func() bool { return len(m.provider.Log()) >= least })
	}
	s.dispatchers[0].Kill()
	for i, m := range models {
		for _, id := range s.posted[m.name] {
			if state, attempts := s.attempts(m.name, id); attempts != 0 || state == "dead" {
				t.Errorf("%s: job %s is %s and has spent %d attempts", m.name, id, state, attempts)
			}
		}
		m.provider.Heal()
		if faults[i].released {
			s.operate("bucket", "release", m.name)
		}
	}
	s.awaitAnswered(30 * time.Second)
	for _, m := range models {
		log := m.provider.Log()
		t.Logf("%s: %d refused, %d answered", m.name, len(log.Refused()), len(log.Answered()))
	}
}

// attempts is the state of a job, and how many attempts it has spent.
func (s *llmSystem) attempts(bucket, id string) (state string, attempts int) {
	s.t.Helper()
	answer := s.ask(http.MethodGet, s.producers[0]+"/v1/buckets/"+bucket+"/jobs/"+id, "", "")
	var job struct {
		State    string `json:"state"`
		Attempts *int   `json:"attempts"`
	}
	if err := json.Unmarshal(answer, &job); err != nil || job.Attempts == nil {
		s.t.Fatalf("job %s: %s, %v", id, answer, err)
	}
	return job.State, *job.Attempts
}
