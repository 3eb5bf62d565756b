package llm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// Answers as the APIs give them, shortened.
const (
	chatAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-4o-mini-2024-07-18",
		"choices":[{"index":0,"message":{"role":"assistant","content":"Hello!"},"finish_reason":"stop"}],
		"usage":{"prompt_tokens":1200,"completion_tokens":9,"total_tokens":1209,"prompt_tokens_details":{"cached_tokens":1024}}}`
	responsesAnswer = `{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hello!"}]}],
		"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":123}}`
	embeddingsAnswer = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-0.2]}],"model":"text-embedding-3-small",
		"usage":{"prompt_tokens":8,"total_tokens":8}}`
	messagesAnswer = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"text","text":"Hello!"}],"stop_reason":"end_turn",
		"usage":{"input_tokens":21,"cache_creation_input_tokens":188,"cache_read_input_tokens":4096,"output_tokens":393}}`
)

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		api    API
		answer string
		want   string // "" none
	}{
		{OpenAI, chatAnswer, "input:1200,output:9"},
		{OpenAI, responsesAnswer, "input:36,output:87"},
		{OpenAI, embeddingsAnswer, "input:8,output:0"},
		{Anthropic, messagesAnswer, "input:209,output:393"},
		{Anthropic, `{"usage":{"input_tokens":21,"cache_creation_input_tokens":null,"output_tokens":3}}`, "input:21,output:3"},
		{OpenAI, `{"usage":{"prompt_tokens":1e30,"completion_tokens":2}}`, "input:2147483647,output:2"},
		{Anthropic, `{"usage":{"input_tokens":2147483647,"cache_creation_input_tokens":1,"output_tokens":2}}`, "input:2147483647,output:2"},
		{OpenAI, `{"usage":null}`, ""},
		{OpenAI, `{"usage":{}}`, ""},
		{OpenAI, `{"usage":[1]}`, ""},
		{OpenAI, `{"usage":{"prompt_tokens":-1,"completion_tokens":2}}`, ""},
		{OpenAI, `{"usage":{"prompt_tokens":"8"}}`, ""},
		{Anthropic, `{"usage":{"prompt_tokens":8,"completion_tokens":2}}`, ""},
		{OpenAI, chatAnswer[:200], ""},
		{OpenAI, "Hello!", ""},
		{OpenAI, "", ""},
	} {
		used, ok := Usage(c.api, []byte(c.answer))
		if ok != (c.want != "") || used.String() != c.want {
			t.Errorf("%s %s: %q, want %q", c.api, c.answer, used, c.want)
		}
	}
}

func FuzzUsage(f *testing.F) {
	for _, seed := range []string{chatAnswer, responsesAnswer, embeddingsAnswer, messagesAnswer, `{"usage":{"input_tokens":1e400}}`, `{"data":null}`, "x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, api := range []API{OpenAI, Anthropic} {
			used, ok := Usage(api, answer)
			if ok != (len(used) == 2) || used.Validate() != nil {
				t.Fatalf("%t: %s, %v", ok, used, used.Validate())
			}
			c := valid(api)
			for _, maximum := range []int64{unbounded, 0, 50} {
				r := &request{model: "m", maximum: maximum, choices: 1}
				spent := c.charge(r, &shaper.Answer{Status: 200, Body: answer}, nil)
				charged, use := spent.charged, spent.use(api, "m")
				if use.Input < 0 || use.Output < 0 || use.Output > charged[shaper.UnitOutput] {
					t.Fatalf("with a maximum of %d: it used %+v", maximum, use)
				}
				if len(charged) != 2 || charged.Validate() != nil || c.CountMaxTokens && charged[shaper.UnitOutput] < maximum {
					t.Fatalf("with a maximum of %d: %s", maximum, charged)
				}
			}
		}
	})
}

func TestCharge(t *testing.T) {
	t.Parallel()
	const hundred = 333 // bytes that are 100 tokens
	written := strings.Repeat("a", hundred-len("messagecontent"))
	for _, c := range []struct {
		name    string
		counts  bool
		maximum int64
		answer  string
		cut     bool
		want    string // "" nil, as much as was reserved
		use     string // input and output
	}{
		{"no maximum", true, unbounded, chatAnswer, false, "input:1200,output:9", "1200 9"},
		{"a maximum that counts", true, 4096, chatAnswer, false, "input:1200,output:4096", "1200 9"},
		{"a maximum below the answer", true, 4, chatAnswer, false, "input:1200,output:9", "1200 9"},
		{"a maximum that does not count", false, 4096, chatAnswer, false, "input:1200,output:9", "1200 9"},
		{"no usage", false, unbounded, `{"choices":[{"message":{"content":"` + written + `"}}]}`, false, "input:300,output:100", "300 100"},
		{"no usage, and a low maximum", false, 30, `{"choices":[{"message":{"content":"` + written + `"}}]}`, false, "input:300,output:30", "300 30"},
		{"no usage, and a maximum that counts", true, 4096, `{"choices":[{"message":{"content":"` + written + `"}}]}`, false, "input:300,output:4096", "300 100"},
		{"no JSON", false, unbounded, strings.Repeat("a", hundred), false, "input:300,output:100", "300 100"},
		{"another object", false, unbounded, `{"text":"` + strings.Repeat("a", hundred-11) + `"}`, false, "input:300,output:100", "300 100"},
		{"vectors without usage", false, unbounded, `{"object":"list","data":[{"embedding":[0.1,-0.2]}]}`, false, "input:300,output:0", "300 0"},
		{"nothing", false, unbounded, "", false, "input:300,output:0", "300 0"},
		{"cut before its usage", true, 4096, chatAnswer[:200], true, "", "300 4096"},
		{"cut after its usage", true, unbounded, chatAnswer, true, "input:1200,output:9", "1200 9"},
	} {
		config := valid(OpenAI)
		config.CountMaxTokens = c.counts
		r := &request{model: "m", content: content{text: 1000}, maximum: c.maximum, choices: 1}
		spent := config.charge(r, &shaper.Answer{Status: 200, Body: []byte(c.answer), Cut: c.cut}, nil)
		got, use := spent.charged, spent.use(OpenAI, "m")
		if got.String() != c.want || (got == nil) != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if text := fmt.Sprint(use.Input, " ", use.Output); use.Model != "m" || text != c.use {
			t.Errorf("%s: it used %+v, want %s", c.name, use, c.use)
		}
	}
}

// Answers with usage change the estimates, others do not. A maximum that counts changes none.
func TestChargeUpdatesEstimates(t *testing.T) {
	t.Parallel()
	config, l := valid(OpenAI), &LearnedEstimates{}
	r := &request{model: "m", content: content{text: 2400}, maximum: 4096, choices: 1}
	for range 10 {
		config.charge(r, &shaper.Answer{Status: 200, Body: []byte(chatAnswer)}, l)
		config.charge(r, &shaper.Answer{Status: 200, Body: []byte("no usage")}, l)
	}
	must.Equal(t, l.usual("m", inputText, ofText), (expectation{0.5, 0, 9}), "want 0.5 tokens a byte and 9 tokens")
}

// What was read from the provider's cache is told apart, and is part of the input that OpenAI counts.
func TestCachedInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		api    API
		answer string
		want   tokens
	}{
		{OpenAI, chatAnswer, tokens{1200 - 1024, 1024, 9}},
		{OpenAI, responsesAnswer, tokens{36, 0, 87}},
		{OpenAI, `{"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":30},"output_tokens":87}}`, tokens{6, 30, 87}},
		{OpenAI, `{"usage":{"prompt_tokens":8,"prompt_tokens_details":null}}`, tokens{8, 0, 0}},
		{OpenAI, `{"usage":{"prompt_tokens":8,"prompt_tokens_details":[5]}}`, tokens{8, 0, 0}},
		{OpenAI, `{"usage":{"prompt_tokens":8,"prompt_tokens_details":{"cached_tokens":9}}}`, tokens{0, 8, 0}}, // no more than there is
		{Anthropic, messagesAnswer, tokens{209, 4096, 393}},
	} {
		if got, ok := readReport([]byte(c.answer)).usage(c.api); !ok || got != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.api, c.answer, got, c.want)
		}
	}
}
