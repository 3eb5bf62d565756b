package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// apiOf is the settings of an API that answers as serve does.
func apiOf(t *testing.T, api API, serve http.HandlerFunc) Config {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	c := DefaultConfig(api)
	c.HTTP.BaseURL, c.HTTP.AllowNetworks, c.CountMaxTokens = server.URL, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, false
	return c
}

// open opens a call of a chat that streams, of which the API's path is the last part of /v1/.
func open(ctx context.Context, w *Worker, path string) (*Call, shaper.Outcome) {
	ask := w.Ask("/v1/"+path, []byte(chat(`,"stream":true`)))
	a := shaper.NewAttempt(time.Now(), time.Minute, nil)
	a.Bucket, a.ID, a.URL = "b", "job-1", "/v1/"+path
	return w.Open(ctx, a, ask)
}

// drain reads what passes, to the end.
func drain(c *Call) (passed string, err error) {
	for {
		part, err := c.Next()
		if err != nil {
			return passed, err
		}
		passed += string(part)
	}
}

// Each part of an answer passes before the next one comes, and the outcome says what was used.
func TestCallPassesAtOnce(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	w := workerOf(t, apiOf(t, OpenAI, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream_options":{"include_usage":true}`) {
			t.Errorf("the API was asked %s", body)
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for event := range strings.SplitAfterSeq(chatStream, "\n\n") {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
			if event != usageChunk && event != "" {
				<-next
			}
		}
	}))
	c, outcome := open(t.Context(), w, "chat/completions")
	if c == nil || outcome.Result != 0 || c.Status != http.StatusOK {
		t.Fatalf("%+v", outcome)
	}
	for event := range strings.SplitAfterSeq(strings.Replace(chatStream, usageChunk, "", 1), "\n\n") {
		if event == "" {
			break
		}
		part, err := c.Next()
		if string(part) != event || err != nil {
			t.Fatalf("passed %q, %v; want %q", part, err, event)
		}
		next <- struct{}{}
	}
	if part, err := c.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %q, %v", part, err)
	}
	outcome = c.Close()
	if outcome.Result != shaper.ResultDone || outcome.Used.String() != "input:1200,output:9" || *outcome.Use != (shaper.Use{Model: "m", Input: 1200, Output: 9}) {
		t.Errorf("%+v", outcome)
	}
}

// An answer for which there is no memory passes on as it comes, and is charged what was reserved. Memory is taken for all that is kept.
func TestMemoryOfAnswers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300<<10)
	whole := `{"id":"r","model":"m","choices":[{"message":{"content":"` + long + `"}}],"usage":{"prompt_tokens":1200,"completion_tokens":9,"total_tokens":1209}}`
	events := `data: {"id":"r","model":"m","choices":[{"delta":{"content":"` + long + `"}}]}` + "\n\n" + usageChunk + "data: [DONE]\n\n"
	for _, c := range []struct {
		answer, kind, body string
		room, most         int
		told               bool
	}{
		{whole, "application/json", chat(""), 4 << 20, 2 * len(whole), true},
		{whole, "application/json", chat(""), 64 << 10, 64 << 10, false},
		{whole, "application/json", chat(""), 0, 0, false},
		{events, "text/event-stream", chat(`,"stream":true,"stream_options":{"include_usage":true}`), 4 << 20, 2 * len(events), true},
		{events, "text/event-stream", chat(`,"stream":true,"stream_options":{"include_usage":true}`), 64 << 10, 64 << 10, false},
	} {
		w := workerOf(t, apiOf(t, OpenAI, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			_, _ = io.WriteString(w, c.answer)
		}))
		ask := w.Ask("/v1/chat/completions", []byte(c.body))
		taken, refusals := 0, 0
		ask.Memory = func(n int) bool {
			if n < 0 || taken+n > c.room {
				refusals++
				return false
			}
			taken += n
			return true
		}
		a := shaper.NewAttempt(time.Now(), time.Minute, nil)
		a.Bucket, a.ID, a.URL = "b", "job-1", "/v1/chat/completions"
		call, outcome := w.Open(t.Context(), a, ask)
		if call == nil {
			t.Fatalf("%+v", outcome)
		}
		if passed, _ := drain(call); passed != c.answer {
			t.Errorf("%s, room for %d: %d bytes passed on, of %d", c.kind, c.room, len(passed), len(c.answer))
		}
		kept := cap(call.whole)
		if call.stream != nil {
			kept = cap(call.stream.event) - firstEvent
		}
		outcome = call.Close()
		isTold := outcome.Used.String() == "input:1200,output:9"
		if isTold != c.told || !c.told && outcome.Used != nil || outcome.Result != shaper.ResultDone {
			t.Errorf("%s, room for %d: used %v of %v, %+v", c.kind, c.room, outcome.Used, ask.Units, outcome)
		}
		if taken < kept || taken > c.most || (refusals > 0) == c.told || refusals > 1 {
			t.Errorf("%s, room for %d: %d bytes are taken, %d kept, %d times refused", c.kind, c.room, taken, kept, refusals)
		}
	}
}

// What the status calls a success is judged alike whether a request names a model, is a form, or leaves the model to the API. A poll has asked for nothing:
// what it reads may say that another request failed.
func TestCallsWhoseSuccessIsNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, body string
		result     shaper.Result
	}{
		"a model":             {"/v1/responses", `{"model":"m","input":"x"}`, shaper.ResultRetry},
		"no model":            {"/v1/responses", `{"prompt":{"id":"pmpt_1"}}`, shaper.ResultRetry},
		"an empty model":      {"/v1/chat/completions", `{"model":"","messages":[]}`, shaper.ResultRetry},
		"a form":              {"/v1/images/edits", "--x\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nx\r\n--x--\r\n", shaper.ResultRetry},
		"a run of assistants": {"/v1/threads/t/runs", `{"assistant_id":"a"}`, shaper.ResultRetry},
		"a poll":              {"/v1/responses/resp_1", "", shaper.ResultDone},
	} {
		for _, answer := range []string{
			`{"error":{"message":"Rate limited","code":429}}`,
			`{"id":"resp_1","object":"response","status":"failed","error":{"code":"rate_limit_exceeded","message":"x"},"output":[]}`,
		} {
			config := apiOf(t, OpenAI, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answer)
			})
			w := workerOf(t, config)
			a := shaper.NewAttempt(time.Now(), time.Minute, nil)
			a.Bucket, a.ID, a.URL = "b", "job-1", c.path
			call, outcome := w.Open(t.Context(), a, w.Ask(c.path, []byte(c.body)))
			if call == nil {
				t.Fatalf("%s: %+v", name, outcome)
			}
			if passed, _ := drain(call); passed != answer {
				t.Errorf("%s: %q passed on", name, passed)
			}
			if outcome = call.Close(); outcome.Result != c.result {
				t.Errorf("%s: %s is %+v, want %v", name, answer, outcome, c.result)
			}
		}
	}
}

// Answers that are no whole streams.
func TestCallsThatGoWrong(t *testing.T) {
	t.Parallel()
	stream := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	const error529 = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	for name, c := range map[string]struct {
		api    API
		serve  func(w http.ResponseWriter, r *http.Request)
		passed string
		result shaper.Result
		signal shaper.Signal
		reason string
		used   string // "": as reserved
	}{
		"HTML": {OpenAI, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<p>Hello</p>")
		}, "<p>Hello</p>", shaper.ResultRetry, shaper.SignalFailed, "http_500", "-"},
		"no stream": {OpenAI, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, chatAnswer)
		}, chatAnswer, shaper.ResultDone, shaper.SignalAccepted, "", "input:1200,output:9"},
		"cut": {Anthropic, func(w http.ResponseWriter, _ *http.Request) {
			stream(w, messagesStream[:len(messagesStream)-120])
			panic(http.ErrAbortHandler)
		}, messagesStream[:len(messagesStream)-120], shaper.ResultRetry, shaper.SignalFailed, ReasonCut, "input:209,output:200"},
		"an error in the stream": {Anthropic, func(w http.ResponseWriter, _ *http.Request) {
			stream(w, messagesStream[:len(messagesStream)-400]+"\n\n"+error529)
		}, messagesStream[:len(messagesStream)-400] + "\n\n" + error529, shaper.ResultHeld, shaper.SignalThrottled, ReasonStreamError, "input:209,output:1"},
		"stands still": {OpenAI, func(w http.ResponseWriter, r *http.Request) {
			stream(w, "data: {}\n\n")
			<-r.Context().Done()
		}, "data: {}\n\n", shaper.ResultRetry, shaper.SignalFailed, ReasonCut, "input:7,output:0"},
		"429": {OpenAI, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, "{}")
		}, "{}", shaper.ResultHeld, shaper.SignalThrottled, "http_429", ""},
		"529": {Anthropic, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(529) }, "", shaper.ResultHeld, shaper.SignalThrottled, "http_529", "-"},
		"404": {OpenAI, func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, "404 page not found\n", shaper.ResultDead, shaper.SignalAccepted, "http_404", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := apiOf(t, c.api, c.serve)
			config.IdleTimeout, config.HTTP.Policy.Hold = time.Second, true
			call, outcome := open(t.Context(), workerOf(t, config), "chat/completions")
			if call == nil {
				t.Fatalf("%+v", outcome)
			}
			passed, err := drain(call)
			outcome = call.Close()
			used := outcome.Used.String()
			if outcome.Used != nil && used == "" {
				used = "-"
			}
			if passed != c.passed || (c.reason == ReasonCut) == errors.Is(err, io.EOF) || outcome.Result != c.result || outcome.Signal != c.signal || outcome.Reason != c.reason || used != c.used {
				t.Errorf("passed %q, %v; %+v; used %q, want %q", passed, err, outcome, used, c.used)
			}
		})
	}
}

// A call is cancelled: its client has gone, or its lease was lost. Neither says anything of the API.
func TestCancelledCalls(t *testing.T) {
	t.Parallel()
	m, reg := newMetrics(t)
	gone := make(chan struct{})
	config := apiOf(t, Anthropic, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, messagesStream[:len(messagesStream)-120])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	w := must.Get(New(config, nil, m))(t)
	t.Cleanup(w.Close)
	for by, cause := range map[string]error{byClient: ErrClientGone, byTundish: errors.New("the lease is lost")} {
		ctx, cancel := context.WithCancelCause(t.Context())
		call, outcome := open(ctx, w, "messages")
		if call == nil {
			t.Fatalf("%+v", outcome)
		}
		must.Get(call.Next())(t)
		cancel(cause)
		if _, err := drain(call); !errors.Is(err, cause) {
			t.Errorf("%s: %v", by, err)
		}
		if outcome := call.Close(); outcome.Result != shaper.ResultDone || outcome.Signal != shaper.SignalAccepted || outcome.Used.String() != "input:209,output:200" {
			t.Errorf("%s: %+v", by, outcome)
		}
		<-gone
	}
	families := must.Get(reg.Gather())(t)
	seen := map[string]string{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := ""
			for _, label := range metric.GetLabel() {
				labels += "," + label.GetValue()
			}
			seen[family.GetName()+labels] = fmt.Sprint(metric.GetCounter().GetValue(), metric.GetGauge().GetValue(), metric.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]string{
		"tundish_llm_requests_total,b,client": "1 0 0", "tundish_llm_requests_total,b,tundish": "1 0 0", "tundish_llm_streams,b": "0 0 0", "tundish_llm_first_byte_seconds,b": "0 0 2",
	} {
		must.Equal(t, seen[name], want, "%s is", name)
	}
}
