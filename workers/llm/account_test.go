package llm

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// ask makes a call behind a route: a POST with a body, a GET without one. It returns what was reserved, and the outcome.
func ask(t *testing.T, w *Worker, path, body string) (reserved shaper.Units, outcome shaper.Outcome) {
	t.Helper()
	a := shaper.NewAttempt(time.Now(), time.Minute, nil)
	a.Bucket, a.ID, a.URL, a.Method = "b", "job-1", path, http.MethodPost
	if body == "" {
		a.Method = http.MethodGet
	}
	ask := w.Ask(path, []byte(body))
	a.Reserved = ask.Units
	call, outcome := w.Open(t.Context(), a, ask)
	if call == nil {
		t.Fatalf("%s: %+v", path, outcome)
	}
	_, _ = drain(call) // an answer that breaks off has an outcome
	return ask.Units, call.Close()
}

// answers is an API that answers JSON, or a stream.
func answers(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(text, "data:") || strings.HasPrefix(text, "event:") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, text)
	}
}

// A usage is charged wherever it is reported, and counted for the model that the path names, else the body, else the response. Each request
// reserves something that asks a model.
func TestUsageWithoutModel(t *testing.T) {
	t.Parallel()
	const (
		hello    = `"messages":[{"role":"user","content":"Hello"}]`
		form     = "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--x--\r\n"
		runs     = `{"id":"run_1","object":"thread.run","status":"completed","model":"gpt-4o","usage":{"prompt_tokens":900,"completion_tokens":100,"total_tokens":1000}}`
		heard    = `{"text":"Hello","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":0},"output_tokens":45,"total_tokens":59}}`
		seconds  = `{"text":"Hello","usage":{"type":"duration","seconds":9}}`
		converse = `{"output":{"message":{"role":"assistant","content":[{"text":"Hello"}]}},"stopReason":"end_turn","usage":{"inputTokens":30,"outputTokens":628,"totalTokens":658}}`
		batch    = `{"id":"batch_1","object":"batch","status":"completed","model":"gpt-4o","usage":{"input_tokens":9000000,"output_tokens":9,"total_tokens":9000009}}`
	)
	for name, c := range map[string]struct {
		api        API
		path, body string
		answer     string
		reserved   string
		charged    string // "-": nothing
		model      string // "": no call is counted
	}{
		"Azure":           {OpenAI, "/openai/deployments/gpt%2D4/chat/completions?api-version=1", "{" + hello + "}", chatAnswer, "input:6,output:500", "input:1200,output:9", "gpt-4"},
		"Azure streams":   {OpenAI, "/deployments/prod/chat/completions", "{" + hello + `,"stream":true}`, chatStream, "input:6,output:500", "input:1200,output:9", "prod"},
		"Azure, and both": {OpenAI, "/deployments/prod/chat/completions", `{"model":"gpt-4o",` + hello + "}", chatAnswer, "input:6,output:500", "input:1200,output:9", "prod"},
		"an empty model":  {OpenAI, "/v1/chat/completions", `{"model":"",` + hello + "}", chatAnswer, "input:6,output:500", "input:1200,output:9", "gpt-4o-mini-2024-07-18"},
		"no model at all": {OpenAI, "/v1/responses", `{"input":"Hello"}`, responsesAnswer, "input:2,output:500", "input:36,output:87", "unknown"},
		"a long model":    {OpenAI, "/v1/responses", `{"model":"` + strings.Repeat("m", 201) + `","input":"Hello"}`, responsesAnswer, "input:2,output:500", "input:36,output:87", strings.Repeat("m", 200)},
		"a form":          {OpenAI, "/v1/audio/transcriptions", form, heard, "input:4000,output:500", "input:14,output:45", "unknown"},
		"seconds":         {OpenAI, "/v1/audio/transcriptions", form, seconds, "input:4000,output:500", "-", ""},
		"an upload":       {OpenAI, "/v1/files", form, `{"id":"file-1","object":"file","status":"processed"}`, "input:0,output:0", "-", ""},
		"an assistant":    {OpenAI, "/v1/threads/t/runs", `{"assistant_id":"asst_1"}`, runs, "input:4000,output:500", "input:900,output:100", "gpt-4o"},
		"a run that streams": {OpenAI, "/v1/threads/t/runs", `{"assistant_id":"asst_1","stream":true}`,
			"event: thread.run.created\ndata: " + strings.Replace(runs[:60], `"completed"`, `"queued"`, 1) + `"usage":null}` + "\n\nevent: thread.run.completed\ndata: " + runs + "\n\nevent: done\ndata: [DONE]\n\n",
			"input:4000,output:500", "input:900,output:100", "gpt-4o"},
		"Bedrock, invoke":           {Anthropic, "/model/anthropic.claude-v1%3A0/invoke", `{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,` + hello + "}", messagesAnswer, "input:6,output:9", "input:209,output:393", "anthropic.claude-v1:0"},
		"Bedrock, converse":         {Anthropic, "/model/claude/converse", `{"messages":[{"role":"user","content":[{"text":"Hello"}]}]}`, converse, "input:8,output:500", "input:30,output:628", "claude"},
		"Bedrock's Titan":           {OpenAI, "/model/titan/invoke", `{"inputText":"Hello"}`, `{"results":[{"outputText":"Hi"}]}`, "input:4000,output:500", "input:4000,output:10", "titan"},
		"models":                    {OpenAI, "/v1/models/ft:gpt-4o:acme", "", `{"id":"gpt-4o","object":"model"}`, "input:0,output:0", "-", ""},
		"count_tokens":              {Anthropic, "/v1/messages/count_tokens", `{"model":"m",` + hello + "}", `{"input_tokens":2095}`, "input:0,output:0", "-", ""},
		"a batch":                   {OpenAI, "/v1/batches/batch_1", "", batch, "input:0,output:0", "-", ""},
		"an assistant that is made": {OpenAI, "/v1/assistants", `{"model":"m","instructions":"Be brief"}`, `{"id":"asst_1","object":"assistant","model":"m"}`, "input:0,output:0", "-", ""},
		"what is unknown":           {OpenAI, "/v1/new", `{"query":"Hello"}`, `{"data":[]}`, "input:4000,output:500", "-", ""},
	} {
		w := workerOf(t, apiOf(t, c.api, answers(c.answer)))
		reserved, outcome := ask(t, w, c.path, c.body)
		charged, model := outcome.Used.String(), ""
		if outcome.Used != nil && charged == "" {
			charged = "-"
		}
		if outcome.Use != nil {
			model = outcome.Use.Model
		}
		if reserved.String() != c.reserved || charged != c.charged || model != c.model || outcome.Result != shaper.ResultDone {
			t.Errorf("%s: reserved %s, charged %q, model %q, %s; want %s, %q, %q", name, reserved, charged, model, outcome.Result, c.reserved, c.charged, c.model)
		}
	}
}

// The base URL of a bucket may name the deployment. A queued job may leave the model to it, to its path, to a stored prompt, or to an assistant.
func TestQueuedWithoutModel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		base, path, body string
		models           []string
		fault            string
	}{
		"the path":              {"", "/openai/deployments/prod/chat/completions", `{"messages":[]}`, nil, ""},
		"the base URL":          {"/openai/deployments/prod", "/chat/completions", `{"messages":[]}`, nil, ""},
		"a pattern, kept":       {"", "/deployments/prod/chat/completions", `{"model":"gpt-5","messages":[]}`, []string{"pr*"}, ""},
		"a pattern, broken":     {"", "/deployments/gpt-5/chat/completions", `{"model":"prod","messages":[]}`, []string{"pr*"}, "payload.model"},
		"a conversation":        {"", "/v1/responses", `{"model":"m","conversation":"conv_1"}`, nil, ""},
		"an earlier response":   {"", "/v1/responses", `{"model":"m","previous_response_id":"resp_1"}`, nil, ""},
		"a stored prompt":       {"", "/v1/responses", `{"prompt":{"id":"pmpt_1"}}`, nil, ""},
		"an unbounded prompt":   {"", "/v1/responses", `{"prompt":{"id":"pmpt_1"}}`, []string{"pr*"}, "payload.model"},
		"an assistant":          {"", "/v1/threads/runs", `{"assistant_id":"asst_1"}`, nil, ""},
		"nothing":               {"", "/v1/chat/completions", `{"messages":[]}`, nil, "payload.model"},
		"no text for the model": {"", "/v1/responses", `{"model":"m"}`, nil, "payload"},
	} {
		config := valid(OpenAI)
		config.HTTP.BaseURL += c.base
		config.Models = c.models
		err := config.CheckJob(&shaper.Job{URL: c.path, Payload: []byte(c.body)})
		if got := strings.Join(faultFields(err), " "); got != c.fault {
			t.Errorf("%s: %q, want %q: %v", name, got, c.fault, err)
		}
	}
}

// background is an API that takes a response of 10,000 tokens at once, and reports its usage from the third poll on.
func background(polls *int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		status, usage := "queued", "null"
		if r.Method == http.MethodGet {
			*polls++
			status = "in_progress"
		}
		if *polls > 2 {
			status, usage = "completed", `{"input_tokens":1000,"output_tokens":9000,"total_tokens":10000}`
		}
		_, _ = fmt.Fprintf(w, `{"id":"resp_1","object":"response","status":%q,"model":"gpt-5-2026","usage":%s}`, status, usage)
	}
}

// A response in the background is charged what was reserved. Each poll that reports the usage names the response, for Redis to settle it once. It
// counts once in the estimate.
func TestBackground(t *testing.T) {
	t.Parallel()
	polls := 0
	l := &LearnedEstimates{}
	w := must.Get(New(apiOf(t, OpenAI, background(&polls)), l, nil))(t)
	t.Cleanup(w.Close)
	reserved, outcome := ask(t, w, "/v1/responses", `{"model":"m","background":true,"input":"Hello"}`)
	if reserved.String() != "input:2,output:500" || outcome.Used != nil || outcome.Use != nil || named(outcome) != "resp_1 m o" {
		t.Errorf("the POST reserved %s: %+v, %s", reserved, outcome, named(outcome))
	}
	for poll, want := range []string{"", "", "input:1000,output:9000", "input:1000,output:9000"} {
		reserved, outcome := ask(t, w, "/v1/responses/resp_1", "")
		if outcome.Used == nil || outcome.Used.String() != want || reserved.String() != "input:0,output:0" {
			t.Errorf("poll %d: %+v", poll, outcome)
		}
		if want != "" && (outcome.Use == nil || outcome.Use.Input != 1000 || outcome.Use.Output != 9000 || named(outcome) != "resp_1  p") {
			t.Errorf("used: %+v, %s", outcome.Use, named(outcome))
		}
	}
	must.Equal(t, l.estimateOf("m").answers(), 1, "number of answers of the model")
}

// named is the response to which an outcome belongs: its id, its model and the role of the attempt.
func named(outcome shaper.Outcome) string {
	if outcome.Response == nil {
		return ""
	}
	return outcome.Response.ID + " " + outcome.Response.Model + " " + string(outcome.Response.Role)
}

// What a request has to do with its response: the usage of a stored chat, of a response that is not in the background, or of a step of a run was
// reported by another one.
func TestRolesOfRequests(t *testing.T) {
	t.Parallel()
	const usage = `"usage":{"input_tokens":9,"output_tokens":9,"prompt_tokens":9,"completion_tokens":9}`
	for name, c := range map[string]struct {
		api        API
		path, body string
		answer     string
		want       string
	}{
		"a chat":               {OpenAI, "/v1/chat/completions", chat(""), chatAnswer, ""},
		"a stored chat":        {OpenAI, "/v1/chat/completions/chatcmpl-1", "", chatAnswer, "chatcmpl-1  q"},
		"a chat that is cut":   {OpenAI, "/v1/chat/completions", chat(`,"stream":true`), `data: {"id":"c","object":"chat.completion.chunk","choices":[{"delta":{"content":"Hi"}}]}` + "\n\n", ""},
		"a message":            {Anthropic, "/v1/messages", `{"model":"m","max_tokens":9,"messages":[]}`, messagesAnswer, ""},
		"a response":           {OpenAI, "/v1/responses", `{"model":"m","input":"Hello"}`, responsesAnswer, "resp_1 m r"},
		"one that waited":      {OpenAI, "/v1/responses", `{"model":"m","input":"Hello"}`, `{"id":"resp_1","object":"response","background":false,` + usage + "}", ""},
		"the same, read":       {OpenAI, "/v1/responses/resp_1", "", `{"id":"resp_1","object":"response","background":false,` + usage + "}", "resp_1  q"},
		"a run":                {OpenAI, "/v1/threads/t/runs", `{"assistant_id":"a"}`, `{"id":"run_1","object":"thread.run","status":"queued","model":"m"}`, "run_1 m o"},
		"a run that goes on":   {OpenAI, "/v1/threads/t/runs/run_1/submit_tool_outputs", `{"tool_outputs":[]}`, `{"id":"run_1","object":"thread.run","status":"completed","model":"m",` + usage + "}", "run_1 m r"},
		"a step of a run":      {OpenAI, "/v1/threads/t/runs/run_1/steps/step_1", "", `{"id":"step_1","object":"thread.run.step","status":"completed",` + usage + "}", "step_1  q"},
		"a server like it":     {OpenAI, "/v1/responses/r", "", `{"id":"r",` + usage + "}", "r  p"},
		"a response that ends": {OpenAI, "/v1/responses/resp_1/cancel", `{}`, `{"id":"resp_1","object":"response","status":"cancelled","background":true,` + usage + "}", "resp_1  p"},
	} {
		_, outcome := ask(t, workerOf(t, apiOf(t, c.api, answers(c.answer))), c.path, c.body)
		must.Equal(t, named(outcome), c.want, "%s", name)
	}
}
