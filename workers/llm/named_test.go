package llm

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// successes are answers with the status 200 that are none, and those that look like it.
var successes = []struct {
	name, kind, body string
	status           int // that it counts as; 200 is a success
}{
	{"429 by a number", "application/json", `{"error":{"message":"Rate limited","code":429}}`, 429},
	{"429 by a word", "application/json", `{"error":{"message":"Rate limited","type":"tokens","code":"rate_limit_exceeded"}}`, 429},
	{"400", "application/json", `{"error":{"message":"Wrong","type":"invalid_request_error","code":null}}`, 400},
	{"500", "application/json", `{"error":{"message":"Oops","code":500,"metadata":{"provider_name":"x"}}}`, 500},
	{"an error in words", "application/json", `{"error":"upstream failed"}`, 500},
	{"a response that failed", "application/json", `{"id":"resp_1","object":"response","status":"failed","error":{"code":"rate_limit_exceeded","message":"x"},"output":[]}`, 429},
	{"a response that failed, with output", "application/json", `{"status":"failed","error":{"code":"server_error"},"output":[{"type":"message"}]}`, 500},
	{"an error in the only choice", "application/json", `{"id":"gen","choices":[{"error":{"code":502,"message":"bad gateway"},"finish_reason":"error","message":{"content":""}}],"usage":{"prompt_tokens":9,"completion_tokens":0}}`, 502},
	{"HTML", "text/html; charset=utf-8", "<html><body>Sign in</body></html>", 500},
	{"HTML that says that it is JSON", "application/json", "\n<!DOCTYPE html><p>x", 500},
	{"nothing", "application/json", "", 500},
	{"Anthropic overloaded", "application/json", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, 529},
	{"a list of Gemini", "application/json", `[{"error":{"code":503,"status":"UNAVAILABLE"}}]`, 503},

	{"a chat", "application/json", `{"choices":[{"message":{"content":"hi"}}],"error":null}`, 200},
	{"a chat with a warning", "application/json", `{"choices":[{"message":{"content":"hi"}}],"error":{"code":429}}`, 200},
	{"a response at its maximum", "application/json", `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"error":null,"output":[{"type":"message"}]}`, 200},
	{"one good choice of two", "application/json", `{"choices":[{"message":{"content":"hi"}},{"error":{"code":500}}]}`, 200},
	{"embeddings", "application/json", `{"object":"list","data":[{"embedding":[0.1]}]}`, 200},
	{"a message", "application/json", `{"type":"message","content":[{"type":"text","text":"error"}]}`, 200},
	{"speech", "audio/mpeg", "ID3\x04", 200},
	{"a transcript", "text/plain", "Error: it said", 200},
}

func TestFaultsInSuccesses(t *testing.T) {
	t.Parallel()
	for _, api := range []API{OpenAI, Anthropic} {
		for _, c := range successes {
			p := newProvider(t)
			p.status, p.header, p.answer = 200, http.Header{"Content-Type": {c.kind}}, c.body
			got := deliver(t, workerOf(t, p.config(api)), chat(""), 1<<10)
			if c.status == 200 {
				if got.Result != shaper.ResultDone || got.Reason != "" {
					t.Errorf("%s %s: %+v, want it done", api, c.name, got)
				}
				continue
			}
			want := refineOutcome(p.config(api).HTTP.Policy, p.config(api).HTTP.Policy.Judge(&workers.Response{Status: c.status, Header: http.Header{}, At: time.Now()}), nil)
			if got.Result != want.Result || got.Reason != want.Reason || got.Signal != want.Signal || got.Used == nil || len(got.Used) > 0 || got.Use != nil || got.Status != 200 {
				t.Errorf("%s %s: %+v, want %s %s, used nothing", api, c.name, got, want.Result, want.Reason)
			}
			if !strings.Contains(got.Detail, fmt.Sprint("counts as ", c.status)) {
				t.Errorf("%s %s: %s", api, c.name, got.Detail)
			}
			if got.Answer == nil || string(got.Answer.Body) != c.body {
				t.Errorf("%s %s: the answer is %+v", api, c.name, got.Answer)
			}
		}
	}
}

// Errors in events are judged by the status that they name.
func TestFaultsInStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		api    API
		events string
		signal shaper.Signal
	}{
		"a number without a type": {OpenAI, `data: {"error":{"code":429,"message":"x"}}` + "\n\n", shaper.SignalThrottled},
		"a text number":           {OpenAI, `data: {"error":{"code":"429"}}` + "\n\n", shaper.SignalThrottled},
		"response.failed":         {OpenAI, "event: response.failed\n" + `data: {"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded"}}}` + "\n\n", shaper.SignalThrottled},
		"response.failed, plain":  {OpenAI, `data: {"type":"response.failed","response":{"status":"failed","error":null}}` + "\n\n", shaper.SignalFailed},
		"error of a response":     {OpenAI, `data: {"type":"error","code":"server_error","message":"x"}` + "\n\n", shaper.SignalFailed},
		"429 of a response":       {OpenAI, `data: {"type":"error","code":"rate_limit_exceeded","message":"x"}` + "\n\n", shaper.SignalThrottled},
		"error in a choice":       {OpenAI, `data: {"choices":[{"delta":{"content":""},"error":{"code":503},"finish_reason":"error"}]}` + "\n\n", shaper.SignalThrottled},
		"a bad request":           {Anthropic, `data: {"type":"error","error":{"type":"invalid_request_error"}}` + "\n\n", shaper.SignalAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := apiOf(t, c.api, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write([]byte(c.events))
			})
			call, _ := open(t.Context(), workerOf(t, config), "chat/completions")
			passed, _ := drain(call)
			outcome := call.Close()
			if passed != c.events || outcome.Signal != c.signal || outcome.Reason != ReasonStreamError || outcome.Used == nil || len(outcome.Used) > 0 {
				t.Errorf("passed %q; %+v", passed, outcome)
			}
		})
	}
}

// A rule of the bucket judges before what is built in.
func TestRulesOfABucketWithModels(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.status, p.header, p.answer = 200, http.Header{"Content-Type": {"application/json"}}, `{"error":{"code":429}}`
	config := p.config(OpenAI)
	config.HTTP.Policy.Rules = workers.Rules{{Pointer: "/error/code", Value: "429", Outcome: workers.RuleDead}}
	if got := deliver(t, workerOf(t, config), chat(""), 1<<10); got.Result != shaper.ResultDead || got.Reason != workers.ReasonRule || got.Used == nil {
		t.Errorf("%+v, want it dead by the rule, used nothing", got)
	}
}
