package llmprovider_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/llmprovider"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/workers/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const minute = time.Minute

// call sends a request with so many tokens of input and a maximum, 0 none, and returns the answer.
func call(ctx context.Context, p *llmprovider.Provider, path, id string, input, maxTokens int) *httptest.ResponseRecorder {
	maximum := ""
	if maxTokens > 0 {
		maximum = fmt.Sprintf(`,"max_tokens":%d`, maxTokens)
	}
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]%s}`, strings.Repeat("x", 4*input), maximum)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Idempotency-Key", id)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

const chat, messages = "/v1/chat/completions", "/v1/messages"

// OpenAI counts max_tokens when a call comes, and gives nothing back; without max_tokens, what the answer has. Each window is as long as the
// limit says, to the nanosecond.
func TestOpenAICharges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := llmprovider.New(llmprovider.Settings{
			Limits:   []llmprovider.Limit{{Unit: llmprovider.Tokens, Amount: 1000, Window: minute}, {Unit: llmprovider.Requests, Amount: 3, Window: minute}},
			UsedFrom: .5, UsedTo: .5, ExpectedOutput: 200,
		})
		began := time.Now()
		for i, c := range []struct {
			at         time.Duration
			input, max int
			status     int
		}{
			{0, 100, 500, 200},                // 600
			{time.Second, 100, 301, 429},      // 401 are not free
			{time.Second, 100, 0, 200},        // 200: 100 of input, and 100 that the answer has
			{2 * time.Second, 100, 101, 429},  // 201
			{2 * time.Second, 100, 100, 200},  // 200: the limit is used to the last token
			{minute - 1, 10, 10, 429},         // the first call is still in the window
			{minute, 100, 500, 200},           // and now it is not
			{minute + 1, 1, 1, 429},           // the window is full again
			{minute + time.Second, 1, 1, 200}, // the second call has left
			{minute + time.Second, 1, 1, 429}, // that was the third request in the window
			{2 * minute, 1, 1001, 429},        // never
			{3 * minute, 500, 500, 200},       // all at once
			{4*minute - 1, 0, 1, 429},
			{4 * minute, 1, 1, 200},
			{4*minute + 1, 1000 - 2, 1, 429}, // 2 are used
			{4*minute + 1, 1000 - 2, 0, 429}, // its answer has 100
			{4*minute + 1, 1000 - 102, 0, 200},
		} {
			time.Sleep(time.Until(began.Add(c.at))) //nolint:forbidigo // in a bubble: no time passes
			must.Equal(t, call(t.Context(), p, chat, fmt.Sprint(i), c.input, c.max).Code, c.status, "call %d", i)
		}
		log := p.Log()
		if got, refused := log.Most(llmprovider.Tokens, minute), len(log.Refused()); got != 1000 || refused != 9 {
			t.Errorf("most in a window %d, want 1000; refused %d, want 9", got, refused)
		}
		if c := log[0]; c.Output != 250 || c.Used() != 350 || !c.Answered {
			t.Errorf("the first call: %+v, want half of 500 as output", c)
		}
	})
}

// Anthropic counts input when a call comes, and output as it comes; max_tokens count for nothing.
func TestAnthropicCharges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := llmprovider.New(llmprovider.Settings{
			API:      llmprovider.Anthropic,
			Limits:   []llmprovider.Limit{{Unit: llmprovider.Tokens, Amount: 1000, Window: minute}},
			CallTime: 10 * time.Second, UsedFrom: .5, UsedTo: .5,
		})
		var running sync.WaitGroup
		running.Go(func() { call(t.Context(), p, messages, "long", 100, 1600) }) // 800 of output in 10 s
		left := func(want string) {
			t.Helper()
			w := call(t.Context(), p, messages, "probe", 2000, 1)
			if got := w.Header().Get("Anthropic-Ratelimit-Tokens-Remaining"); got != want || w.Code != http.StatusTooManyRequests {
				t.Errorf("%d, %s are left, want %s", w.Code, got, want)
			}
		}
		synctest.Wait()
		left("900")
		time.Sleep(5 * time.Second) //nolint:forbidigo // in a bubble: no time passes
		left("500")
		running.Wait()
		left("100")
		time.Sleep(minute - 10*time.Second) //nolint:forbidigo // in a bubble: no time passes
		left("200")                         // the input has left the window
		time.Sleep(5 * time.Second)         //nolint:forbidigo // in a bubble: no time passes
		left("600")
		log := p.Log().Only(func(c *llmprovider.Call) bool { return c.ID == "long" })
		if most, at := log.Most(llmprovider.Tokens, 5*time.Second), log[0].At; most != 460 || log.Sum(llmprovider.Output, at, at.Add(minute)) != 800 {
			t.Errorf("%d in 5 s, want 460; charges %+v", most, log[0].Charges)
		}
	})
}

// A refusal says in the words of each API which limit, and how long to wait.
func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := []llmprovider.Limit{{Unit: llmprovider.Tokens, Amount: 1000, Window: minute}}
		began := time.Now()
		for _, c := range []struct {
			api        llmprovider.API
			path, body string
			input      int
			header     map[string]string
		}{
			{llmprovider.OpenAI, chat, `{"error":{"code":"rate_limit_exceeded","message":"Rate limit reached for m on tokens per 1m0s: Limit 1000, Used 900, Requested 301. Please try again in 58.5s.","param":null,"type":"tokens"}}`, 300, map[string]string{
				"Retry-After": "59", "Retry-After-Ms": "58500", "X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "100", "X-Ratelimit-Reset-Tokens": "59.5s",
			}},
			{llmprovider.OpenAI, chat, `{"error":{"code":"rate_limit_exceeded","message":"Request too large for m on tokens per 1m0s: Limit 1000, Requested 1201.","param":null,"type":"tokens"}}`, 1200, map[string]string{
				"Retry-After": "", "Retry-After-Ms": "",
			}},
			{llmprovider.Anthropic, messages, `{"error":{"message":"Rate limit reached for m on tokens per 1m0s: Limit 1000, Used 900, Requested 300. Please try again in 58.5s.","type":"rate_limit_error"},"type":"error"}`, 300, map[string]string{
				"Retry-After": "59", "Retry-After-Ms": "", "Anthropic-Ratelimit-Tokens-Limit": "1000", "Anthropic-Ratelimit-Tokens-Remaining": "100",
			}},
		} {
			p := llmprovider.New(llmprovider.Settings{API: c.api, Limits: limits})
			call(t.Context(), p, c.path, "a", 399, 1)
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble: no time passes
			call(t.Context(), p, c.path, "b", 499, 1)
			time.Sleep(time.Second / 2) //nolint:forbidigo // in a bubble: no time passes
			w := call(t.Context(), p, c.path, "c", c.input, 1)
			if diff := cmp.Diff(c.body, strings.TrimSpace(w.Body.String())); diff != "" || w.Code != http.StatusTooManyRequests {
				t.Errorf("%s: %d (-want +got):\n%s", c.api, w.Code, diff)
			}
			for name, want := range c.header {
				must.Equal(t, w.Header().Get(name), want, "%s: %s", c.api, name)
			}
			reset, err := time.Parse(time.RFC3339, w.Header().Get("Anthropic-Ratelimit-Tokens-Reset"))
			if wait := time.Until(reset); c.api == llmprovider.Anthropic && (err != nil || wait < 58*time.Second || wait > minute) {
				t.Errorf("the limit resets in %s, %v", wait, err)
			}
		}
		must.Equal(t, time.Since(began), 3*1500*time.Millisecond, "a refusal took its time")
	})
}

// The usage that an answer tells is what the log has, the worker llm reads it, and an answer takes its time.
func TestUsageIsTrue(t *testing.T) {
	t.Parallel()
	for api, path := range map[llmprovider.API]string{llmprovider.OpenAI: chat, llmprovider.Anthropic: messages} {
		synctest.Test(t, func(t *testing.T) {
			p := llmprovider.New(llmprovider.Settings{API: api, CallTime: time.Second, UsedFrom: .3, UsedTo: 2, ExpectedOutput: 500,
				Input: func(id string) int64 { return 1000 + int64(len(id)) }})
			began := time.Now()
			const calls = 400
			sum := int64(0)
			for i := range calls {
				id := fmt.Sprint("job-", i)
				w := call(t.Context(), p, path, id, 1, 0)
				log := p.Log()
				c := log[len(log)-1]
				used, ok := llm.Usage(llm.API(api), w.Body.Bytes())
				if !ok || used["input"] != 1000+int64(len(id)) || used["output"] != c.Output || !json.Valid(w.Body.Bytes()) {
					t.Fatalf("%s: used %v, the log has %+v: %s", api, used, c, w.Body)
				}
				if c.Output < 150 || c.Output > 1000 {
					t.Errorf("%s: an answer has %d tokens, want 0.3 to 2 times 500", api, c.Output)
				}
				sum += c.Output
			}
			if mean := sum / calls; mean < 540 || mean > 610 {
				t.Errorf("%s: %d tokens on average, want about 575", api, mean)
			}
			must.Equal(t, time.Since(began), calls*time.Second, "%s: %d calls took", api, calls)
			if again := call(t.Context(), p, path, "job-7", 1, 0); !strings.Contains(again.Body.String(), fmt.Sprintf(`tokens":%d`, p.Log()[7].Output)) {
				t.Errorf("%s: another answer to the same job: %s", api, again.Body)
			}
			if bounded := call(t.Context(), p, path, "job-7", 1, 160); bounded.Code != http.StatusOK || p.Log()[calls+1].Output > 160 {
				t.Errorf("%s: an answer of %d tokens to a request for 160", api, p.Log()[calls+1].Output)
			}
		})
	}
}

// A client that goes away is charged, and not answered.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := llmprovider.New(llmprovider.Settings{API: llmprovider.Anthropic, CallTime: 10 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		call(ctx, p, messages, "gone", 10, 100)
		call(t.Context(), p, messages, "stays", 10, 100)
		log := p.Log()
		must.Equal(t, cmp.Diff(map[string]int{"stays": 1}, log.Answered()), "", "answered (-want +got):")
		must.Equal(t, log.Sum(llmprovider.Tokens, log[0].At, time.Now().Add(minute)), 220, "tokens are charged")
	})
}

// A request that is none is refused, as by the real ones, and is no call.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		say                string
	}{
		"another path":  {"POST", "/v1/messages", `{}`, 404, "unknown request URL: POST /v1/messages"},
		"a GET":         {"GET", chat, ``, 404, "unknown request URL"},
		"no JSON":       {"POST", chat, `{"model"`, 400, "could not parse"},
		"no model":      {"POST", chat, `{"messages":[]}`, 400, "model parameter"},
		"no messages":   {"POST", chat, `{"model":"m"}`, 400, "'messages'"},
		"a stream":      {"POST", chat, `{"model":"m","messages":[],"stream":true,"max_tokens":7}`, 200, "data: [DONE]"},
		"what is right": {"POST", chat, `{"model":"m","messages":[{"content":[{"type":"text","text":"12345678"}]}],"max_completion_tokens":7}`, 200, `"prompt_tokens":2`},
	} {
		p := llmprovider.New(llmprovider.Settings{})
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body)))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.say) || (len(p.Log()) == 1) != (c.status == 200) {
			t.Errorf("%s: %d %s, %d calls", name, w.Code, w.Body, len(p.Log()))
		}
	}
}
