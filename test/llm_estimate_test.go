package test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// reservationText is what the stored text of a job says of its reservation: see lua/lib/reservation.lua.
var reservationText = regexp.MustCompile(`^\S+ \S+ [^ $]*\$input:(\d+),output:(\d+)`)

// reserved is what jobs of a bucket reserve, in tokens, of those that have not ended.
func (s *llmSystem) reserved(bucket string, ids []string) map[string]int64 {
	s.t.Helper()
	keys, err := s.inspector.Keys(s.t.Context(), "tundish:*:b:"+bucket+":body").Result()
	if err != nil || len(keys) != 1 {
		s.t.Fatalf("bodies of %s: %v, %v", bucket, keys, err)
	}
	texts, err := s.inspector.HMGet(s.t.Context(), keys[0], ids...).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	tokens := map[string]int64{}
	for i, id := range ids {
		text, _ := texts[i].(string)
		if found := reservationText.FindStringSubmatch(text); found != nil {
			var input, output int64
			_, _ = fmt.Sscan(found[1]+" "+found[2], &input, &output)
			tokens[id] = input + output
		}
	}
	return tokens
}

// TestTokensWithoutMaximum: calls without max_tokens, whose answers have 0.3 to 2 times the output that is expected at first. Usage exceeds the
// budget in no window by more than the calls in it had too low reservations. In a soak, the learned estimates are good by the second hundred calls.
func TestTokensWithoutMaximum(t *testing.T) {
	harness.OnlyInCI(t)
	harness.BesideOthers(t)
	const first = 100
	second := 40
	if redistest.Soak {
		second = 200
	}
	budget := "budgets = [\"45000 tokens/5s\"]\n" // a hundred calls in 7 s
	const limit, window = 45_000, 5 * time.Second
	shared := llmprovider.Settings{CallTime: 200 * time.Millisecond, UsedFrom: .3, UsedTo: 2, ExpectedOutput: 500}
	pooled := llmprovider.New(shared)
	models := []model{
		{name: "bucket", keys: budget, provider: llmprovider.New(shared)},
		{name: "flows", keys: budget, tables: flowsOfJobs, provider: llmprovider.New(shared)},
		{name: "group", tables: flowsOfJobs + groupsOfJobs + budget, provider: llmprovider.New(shared)},
		{name: "pooled", keys: "pool = \"vendor\"\n", provider: pooled},
	}
	s := startLLM(t, llmPlan{models: models, pools: "[[pools]]\nname = \"vendor\"\nrate = \"100/s\"\n" + budget, dispatchers: 3, server: redistest.Start(t)})
	reserved := map[string]int64{}
	post := func(m model, from, until int) {
		fields := map[string]func(int) string{"flows": sevenFlows, "group": oneGroup}[m.name]
		for n := from; n < until; {
			var lines, ids []string
			for ; n < until && len(lines) < 20; n++ {
				more := ""
				if fields != nil {
					more = fields(n)
				}
				ids = append(ids, fmt.Sprintf("%s-%d", m.name, n))
				lines = append(lines, m.call(ids[len(ids)-1], 0, more))
			}
			s.post(m.name, lines...)
			for id, tokens := range s.reserved(m.name, ids) {
				reserved[id] = tokens
			}
		}
	}
	for _, m := range models {
		post(m, 0, first)
	}
	s.awaitAnswered(4 * window)
	if redistest.Soak {
		<-time.After(15 * time.Second) // what a process has learned is told to the others every 10 s
	}
	for _, m := range models {
		post(m, first, first+second)
	}
	s.dispatchers[0].Kill()
	s.awaitAnswered(10 * window)
	for _, m := range models {
		judgeEstimates(t, m, reserved, limit, window, first)
	}
}

// judgeEstimates holds the calls of a bucket to what they reserved. first: how many came before there was a learned estimate.
func judgeEstimates(t *testing.T, m model, reserved map[string]int64, limit int64, window time.Duration, first int) {
	t.Helper()
	log, unknown := m.provider.Log(), 0
	within := m.provider.Log()
	used, of := map[bool]float64{}, map[bool]float64{}
	ratios, calls := 0., 0.
	for i, c := range log {
		tokens, known := reserved[c.ID]
		if !known {
			unknown++
			tokens = c.Used()
		}
		within[i].Charges = []llmprovider.Charge{{At: c.At, Input: min(c.Used(), tokens)}}
		var n int
		_, _ = fmt.Sscanf(c.ID, m.name+"-%d", &n)
		later := n >= first
		used[later], of[later] = used[later]+float64(c.Used()), of[later]+float64(tokens)
		if later {
			ratios, calls = ratios+float64(c.Used())/float64(tokens), calls+1
		}
	}
	most, expected := log.Most(llmprovider.Tokens, window), within.Most(llmprovider.Tokens, window)
	t.Logf("%s: %d calls; most in a window %d of %d tokens, %d without what was reserved too little; used over reserved %.2f of the first %d, then %.2f; mean of each %.2f",
		m.name, len(log), most, limit, expected, used[false]/of[false], first, used[true]/of[true], ratios/calls)
	if unknown > len(log)/10 {
		t.Errorf("%s: the reservation of %d of %d calls is not known", m.name, unknown, len(log))
	}
	if expected > limit {
		t.Errorf("%s: a window has %d of %d tokens, beyond what its calls used more than they reserved", m.name, expected, limit)
	}
	if mean := ratios / calls; redistest.Soak && (mean < .6 || mean > 1) {
		t.Errorf("%s: after %d answers calls use %.2f of what they reserve on average, want 0.6 to 1", m.name, first, mean)
	}
}
