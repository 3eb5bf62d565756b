package llm

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// Streams as the APIs give them, shortened. Behind usageChunk is what a client gets that has not asked for it.
const (
	usageChunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":1200,"completion_tokens":9,"total_tokens":1209,"prompt_tokens_details":{"cached_tokens":1024}}}` + "\n\n"
	chatStream = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}` + "\n\n" +
		`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}],"usage":null}` + "\n\n" +
		`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]},"finish_reason":null}],"usage":null}` + "\n\n" +
		`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n" +
		usageChunk + "data: [DONE]\n\n"
	responsesStream = "event: response.created\r\n" + `data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}` + "\r\n\r\n" +
		"event: response.output_text.delta\r\n" + `data: {"type":"response.output_text.delta","delta":"Hello!"}` + "\r\n\r\n" +
		"event: response.completed\r\n" + `data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":87}}}` + "\r\n\r\n"
	messagesStream = "event: message_start\n" + `data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":21,"cache_creation_input_tokens":188,"cache_read_input_tokens":4096,"output_tokens":1}}}` + "\n\n" +
		"event: ping\n" + `data: {"type": "ping"}` + "\n\n" +
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello!"}}` + "\n\n" +
		"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":200}}` + "\n\n" +
		"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":393}}` + "\n\n" +
		"event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n"
)

// in passes a text through a stream, in parts of any size.
func in(t *rapid.T, s *stream, text string) (passed string) {
	for len(text) > 0 {
		n := rapid.IntRange(1, len(text)).Draw(t, "bytes")
		passed += string(s.pass([]byte(text[:n])))
		text = text[n:]
	}
	return passed + string(s.rest())
}

// What passes is what came, but for the chunk that only we have asked for, and the usage is that of the last word on it.
func TestStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		api    API
		text   string
		hides  bool
		passed string // "" all
		want   string // "" it is not whole, or tells none
		output int64
	}{
		"chat":                  {OpenAI, chatStream, false, "", "input:1200,output:9", 8},
		"chat, usage hidden":    {OpenAI, chatStream, true, strings.Replace(chatStream, usageChunk, "", 1), "input:1200,output:9", 8},
		"chat, cut":             {OpenAI, chatStream[:400], true, "", "", 5},
		"chat without usage":    {OpenAI, strings.Replace(chatStream, usageChunk, "", 1), true, "", "", 8},
		"responses":             {OpenAI, responsesStream, false, "", "input:36,output:87", 6},
		"responses, incomplete": {OpenAI, strings.ReplaceAll(responsesStream, "completed", "incomplete"), false, "", "input:36,output:87", 6},
		"messages":              {Anthropic, messagesStream, false, "", "input:209,output:393", 6},
		"messages, cut":         {Anthropic, messagesStream[:len(messagesStream)-120], false, "", "", 6},
		"comments, no events":   {OpenAI, ": keep-alive\n\n\n\nid: 7\n\n", true, "", "", 0},
		"no JSON":               {OpenAI, "data: Hello\n\ndata: [DONE]\n\n", true, "", "", 0},
		"HTML":                  {OpenAI, "<html>\n<p>Bad gateway</p>\n", true, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				s := &stream{api: c.api, hides: c.hides}
				want := c.passed
				if want == "" {
					want = c.text
				}
				must.Be(t, in(t, s, c.text), want, "passed")
				tokens, ok := s.tokens()
				if used := tokens.counted(c.api); ok != (c.want != "") || ok && used.String() != c.want {
					t.Fatalf("used %s, %t; want %q", used, ok, c.want)
				}
				must.Be(t, s.text, c.output, "bytes of output")
			})
		})
	}
}

// Each event passes as soon as it is whole, also where something is hidden.
func TestStreamsPassAtOnce(t *testing.T) {
	t.Parallel()
	s := &stream{api: OpenAI, hides: true}
	for event := range strings.SplitAfterSeq(chatStream, "\n\n") {
		want := event
		if event == usageChunk {
			want = ""
		}
		must.Equal(t, string(s.pass([]byte(event))), want, "passed")
	}
}

// An event that is too long passes, and costs no memory. Nothing is read from there on.
func TestLongEvent(t *testing.T) {
	t.Parallel()
	s := &stream{api: OpenAI, hides: true}
	part := []byte(strings.Repeat("a", 1<<20))
	passed := len(s.pass([]byte("data: ")))
	for range 20 {
		passed += len(s.pass(part))
	}
	passed += len(s.pass([]byte("\n\n"+usageChunk))) + len(s.rest())
	if want := 6 + 20<<20 + 2 + len(usageChunk); passed != want || cap(s.event) != 0 {
		t.Errorf("%d bytes passed, want %d; %d are held", passed, want, cap(s.event))
	}
	config := valid(OpenAI)
	config.CountMaxTokens = false
	if spent := config.chargeStream(&request{model: "m", choices: 1, maximum: unbounded}, s, &LearnedEstimates{}); spent.charged != nil || spent.reported {
		t.Errorf("charged %+v, want what was reserved", spent)
	}
}

// A stream that broke off is charged the input that it told, or its estimate, and the output that it told, at least by the text that came.
func TestChargeOfCutStreams(t *testing.T) {
	t.Parallel()
	r := &request{model: "m", content: content{text: 1000}, choices: 1, maximum: 777}
	for name, c := range map[string]struct {
		api    API
		text   string
		counts bool
		want   string
	}{
		"chat":                    {OpenAI, chatStream[:600], false, "input:300,output:3"},
		"chat that counts maxima": {OpenAI, chatStream[:600], true, "input:300,output:777"},
		"messages":                {Anthropic, messagesStream[:len(messagesStream)-120], false, "input:209,output:200"},
		"messages, at the start":  {Anthropic, messagesStream[:strings.Index(messagesStream, "event: ping")], false, "input:209,output:1"},
		"messages, text alone":    {Anthropic, strings.ReplaceAll(messagesStream[:strings.Index(messagesStream, "event: message_delta")], `,"output_tokens":1`, ""), false, "input:209,output:2"},
		"nothing":                 {Anthropic, "", false, "input:300,output:0"},
	} {
		config := valid(c.api)
		config.CountMaxTokens = c.counts
		s := &stream{api: c.api}
		s.pass([]byte(c.text))
		if spent := config.chargeStream(r, s, &LearnedEstimates{}); spent.charged.String() != c.want || spent.reported {
			t.Errorf("%s: %+v, want %s", name, spent, c.want)
		}
	}
}

func FuzzStream(f *testing.F) {
	for _, seed := range []string{chatStream, responsesStream, messagesStream, "data:\n\n", "\r\n\r\ndata: {\n\n"} {
		f.Add([]byte(seed), 7)
	}
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		size = max(size, 1)
		for _, api := range []API{OpenAI, Anthropic} {
			whole, parts := &stream{api: api, hides: true}, &stream{api: api, hides: true}
			want := string(whole.pass(text)) + string(whole.rest())
			got := ""
			for rest := text; len(rest) > 0; {
				n := min(size, len(rest))
				got += string(parts.pass(rest[:n]))
				rest = rest[n:]
			}
			got += string(parts.rest())
			must.Equal(t, got, want, "in parts of %d bytes passed", size)
			if len(got) > len(text) {
				t.Errorf("of %q more has passed: %q", text, got)
			}
		}
	})
}
