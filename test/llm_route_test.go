package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestRoute: half of the calls are queued, and half come through the route, from clients that stream and clients that do not, to both producers. A
// dispatcher is killed on the way. No client is refused, each gets its own answer, the provider refuses nothing, and no window of it has more
// than the limit.
func TestRoute(t *testing.T) {
	harness.BesideOthers(t)
	const clients = 10
	calls := 60
	if redistest.Soak {
		calls = 500
	}
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		fast := llmprovider.Settings{CallTime: tokenWindow() / 60}
		shared := limited(fast, 0)
		const route = "serve_proxy = true\nproxy_timeout = \"5m\"\n"
		keys := tokenBudgets() + "priority_aging = \"1h\"\n" // the queued jobs are minutes old in the end
		models := []model{
			{name: "bucket", keys: keys, llm: route, provider: limited(fast, 0)},
			{name: "flows", keys: keys, llm: route, tables: "[buckets.flow]\nkey = \"header:x-flow\"\n", provider: limited(fast, 0)},
			{name: "pool-a", keys: "pool = \"vendor\"\npriority_aging = \"1h\"\n", llm: route, provider: shared},
			{name: "pool-b", keys: "pool = \"vendor\"\npriority_aging = \"1h\"\n", llm: route, provider: shared},
		}
		s := startLLM(t, llmPlan{
			models: models, dispatchers: 3, server: redistest.Start(t), pools: "[[pools]]\nname = \"vendor\"\nrate = \"100/s\"\n" + tokenBudgets(),
		})
		var visits sync.WaitGroup
		for _, m := range models {
			n := calls
			if m.provider == shared { // two of them share a budget
				n /= 2
			}
			var lines []string
			for i := range n / 2 {
				lines = append(lines, m.call(fmt.Sprintf("%s-%d", m.name, i), tokensOf(i)-inputTokens, ""))
			}
			s.post(m.name, lines...)
			for c := range clients {
				visits.Go(func() {
					for i := c; i < n/2; i += clients {
						if fault := s.visit(m, i, i%2 == 0); fault != "" {
							t.Errorf("%s, call %d: %s", m.name, i, fault)
						}
					}
				})
			}
		}
		most := tokenWindow() * time.Duration(calls) / 30
		harness.Await(t, max(most, time.Minute), "a third of the calls have come", func() bool { return len(models[0].provider.Log()) >= calls/3 })
		s.dispatchers[0].Kill()
		visits.Wait()
		s.awaitAnswered(most)
		for _, m := range models[:3] {
			log := m.provider.Log()
			fullest := log.Most(llmprovider.Tokens, tokenWindow())
			t.Logf("%s: %d calls, %d refused, most in a window %d", m.name, len(log), len(log.Refused()), fullest)
			if len(log.Refused()) > 0 || fullest > tokenLimit {
				return overWindow(t, stall, tokenWindow(), fmt.Sprintf("%s: %d calls were refused, and a window has %d tokens", m.name, len(log.Refused()), fullest))
			}
		}
		return ""
	})
}

// flowHeader names the flow of a request, where a bucket goes by it.
const flowHeader = "X-Flow"

// visit makes the n-th call of a client through a route, and says what is wrong with the answer.
func (s *llmSystem) visit(m model, n int, streams bool) (fault string) {
	path := "/v1/chat/completions"
	if m.api == llmprovider.Anthropic {
		path = "/v1/messages"
	}
	maximum := tokensOf(n) - inputTokens
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":%d,"stream":%t}`, strings.Repeat("word", inputTokens), maximum, streams)
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.producers[n%len(s.producers)]+"/v1/proxy/"+m.name+path, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(flowHeader, fmt.Sprint("f", n%7))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %.500s, %v", response.StatusCode, answer, err)
	}
	text, isWhole := textOf(answer, streams)
	if want := maximum; len(strings.Fields(text)) != want && streams || !isWhole {
		return fmt.Sprintf("%d words, whole %t, want %d: %.300s … %.300s", len(strings.Fields(text)), isWhole, want, answer, answer[max(len(answer)-300, 0):])
	}
	return ""
}

// textOf is what an answer says, and whether it is whole: a stream without the usage, which was not asked for.
func textOf(answer []byte, streams bool) (text string, isWhole bool) {
	type part struct {
		Type  string `json:"type"`
		Delta struct {
			Text string `json:"text"`
		} `json:"delta"`
		Choices []struct {
			Delta struct {
				Content string `json:"content"`
			} `json:"delta"`
		} `json:"choices"`
		Usage json.RawMessage `json:"usage"`
	}
	if !streams {
		var whole part
		return "", json.Unmarshal(answer, &whole) == nil && len(whole.Usage) > 0
	}
	lines := bufio.NewScanner(strings.NewReader(string(answer)))
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		var p part
		switch {
		case !isData:
		case data == "[DONE]":
			isWhole = true
		case json.Unmarshal([]byte(data), &p) != nil:
			return text, false
		default:
			text += p.Delta.Text
			for _, choice := range p.Choices {
				text += choice.Delta.Content
			}
			if p.Type == "message_stop" {
				isWhole = true
			}
			if p.Type == "" && len(p.Choices) == 0 {
				return text, false
			}
		}
	}
	return text, isWhole
}

// clientAnswer is what testdata/llm.mjs tells of a call.
type clientAnswer struct {
	Kind    string
	Aborted bool
	Text    string
	Output  *int64
	Fault   string
}

// TestRouteWithUnchangedClients: the providers' own clients call through routes, 24 at once, streaming and not, and 50 more abort their streams. Each gets
// what the provider sent, less the usage that nobody asked for. What is charged is what the provider counts, of aborted streams within a tenth.
func TestRouteWithUnchangedClients(t *testing.T) {
	harness.BesideOthers(t)
	const clients, aborted, output = 24, 50, 300
	script := client(t, filepath.Join("testdata", "llm.mjs"))
	const budget, route = "budgets = [\"10000000 tokens/h\"]\nbudget_burst = \"100%\"\n", "serve_proxy = true\ncount_max_tokens = false\nauth.bearer = \"sk_of_the_vendor\"\n"
	settings := llmprovider.Settings{CallTime: time.Second}
	models := []model{
		{name: "openai", keys: budget, llm: route, provider: llmprovider.New(settings)},
		{name: "claude", api: llmprovider.Anthropic, keys: budget, llm: route, provider: llmprovider.New(llmprovider.Settings{API: llmprovider.Anthropic, CallTime: settings.CallTime})},
	}
	server := redistest.Start(t)
	s := startLLM(t, llmPlan{models: models, dispatchers: 3, server: server})
	secrets := []string{"wordword", "of to the", "sk_of_the"}
	var mu sync.Mutex
	told := map[string]string{} // secret -> the command that had it
	commands := 0
	harness.CommandsOf(t, server, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		commands++
		for _, secret := range secrets {
			if strings.Contains(line, secret) {
				told[secret] = line
			}
		}
	})
	cmd := script(fmt.Sprint("CLIENTS=", clients), fmt.Sprint("ABORTED=", aborted), fmt.Sprint("OUTPUT=", output), "KEY=sk_of_the_client",
		"OPENAI="+s.producers[0]+"/v1/proxy/openai/v1", "ANTHROPIC="+s.producers[1]+"/v1/proxy/claude")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, cmd.Stderr)
	}
	var answers []clientAnswer
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != clients+aborted {
		t.Fatalf("%v: %s", err, out)
	}
	for _, a := range answers {
		want := output
		if a.Kind == "embedding" {
			want = 0
		}
		if words := len(strings.Fields(a.Text)); !a.Aborted && (a.Fault != "" || words != want || a.Output != nil && *a.Output != int64(want)) {
			t.Errorf("%s: %d words, %+v", a.Kind, words, a)
		}
	}
	for _, m := range models {
		harness.Await(t, 20*time.Second, "all is settled in "+m.name, func() bool { return s.numbers(m.name).Unfinished == 0 })
		var counted, cut int64
		late := 0
		for _, c := range m.provider.Log() {
			counted += c.Input
			if c.GoneAfter > 0 {
				counted += c.Sent
				cut++
				if c.GoneAfter > 7 { // the fourth part that the client saw, and two more on their way
					late++
				}
			} else {
				counted += c.Output
			}
		}
		charged := s.numbers(m.name).Budgets[0].Charged
		t.Logf("%s: %d calls, %d aborted, %d of them seen late; the provider counts %d tokens, and %d are charged", m.name, len(m.provider.Log()), cut, late, counted, charged)
		if off := float64(charged)/float64(counted) - 1; off < -.1 || off > .1 || cut == 0 {
			t.Errorf("%s: charged %d of %d tokens", m.name, charged, counted)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for secret, line := range told {
		t.Errorf("Redis was told %q: %.300s", secret, line)
	}
	if commands < clients+aborted {
		t.Errorf("Redis was seen to get %d commands", commands)
	}
}
