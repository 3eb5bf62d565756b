package llm

import (
	"encoding/json"
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// counts are the numbers of tokens in an answer. Each API names some of them.
type counts struct {
	Prompt        json.RawMessage `json:"prompt_tokens"`
	PromptDetails json.RawMessage `json:"prompt_tokens_details"`
	Completion    json.RawMessage `json:"completion_tokens"`
	Input         json.RawMessage `json:"input_tokens"`
	InputDetails  json.RawMessage `json:"input_tokens_details"`
	Output        json.RawMessage `json:"output_tokens"`
	CacheWrite    json.RawMessage `json:"cache_creation_input_tokens"`
	CacheRead     json.RawMessage `json:"cache_read_input_tokens"`

	// Bedrock's Converse names them so.
	BedrockInput  json.RawMessage `json:"inputTokens"`
	BedrockOutput json.RawMessage `json:"outputTokens"`
	BedrockWrite  json.RawMessage `json:"cacheWriteInputTokens"`
	BedrockRead   json.RawMessage `json:"cacheReadInputTokens"`
}

// Usage returns what an answer says of the tokens that count against the provider's limits; ok is false if it says nothing.
//
// OpenAI counts input that it has cached as any other. Anthropic counts input that it writes into its cache, and none that it reads there.
func Usage(api API, answer []byte) (used shaper.Units, ok bool) {
	t, ok := readReport(answer).usage(api)
	if !ok {
		return nil, false
	}
	return t.counted(api), true
}

// tokens are those of a request and its answer, each in one number.
type tokens struct {
	input  int64 // but for what was read from the provider's cache
	cached int64
	output int64
}

// counted are those that count against the limits of an API.
func (t tokens) counted(api API) shaper.Units {
	input := t.input
	if api == OpenAI {
		input += t.cached
	}
	return shaper.Units{shaper.UnitInput: atMost(input), shaper.UnitOutput: t.output}
}

// report is what a response, or an event of a stream, says of itself.
type report struct {
	Usage  *counts         `json:"usage"`
	ID     json.RawMessage `json:"id"`
	Object json.RawMessage `json:"object"`
	Model  json.RawMessage `json:"model"`
	Status json.RawMessage `json:"status"`
	Error  json.RawMessage `json:"error"`

	Background json.RawMessage `json:"background"`
}

func readReport(response []byte) (r report) {
	if json.Unmarshal(response, &r) != nil {
		return report{}
	}
	return r
}

// usage reads the tokens that a response reports.
func (r report) usage(api API) (t tokens, ok bool) {
	if r.Usage == nil {
		return t, false
	}
	return r.Usage.read(api)
}

// told is what a response says of itself, besides its usage.
type told struct {
	id     string // "" none
	model  string // "" none
	object string // what it is; "" it does not say
	isOpen bool   // the model still works, and the usage comes later
	isSync bool   // it says that its request waited for it
}

// isBatch reports whether it is a batch of OpenAI, which has limits of its own.
func (t told) isBatch() bool { return t.object == "batch" }

// isPolled reports whether another request than the first may be the one that reports the usage. Others, such as a stored chat, have reported it
// before they are read.
func (t told) isPolled() bool {
	return !t.isSync && (t.object == "" || t.isOfItself())
}

// isOfItself reports whether it is of a kind that may be made in the background.
func (t told) isOfItself() bool { return t.object == "response" || t.object == "thread.run" }

// pending are the statuses of responses and runs whose model still works.
var pending = []string{"queued", "in_progress", "requires_action", "cancelling"}

func (r report) told() told {
	word := func(value json.RawMessage) (text string) {
		_ = json.Unmarshal(value, &text) // what is no text says nothing
		return text
	}
	return told{
		id: word(r.ID), model: short(word(r.Model)), object: word(r.Object), isOpen: slices.Contains(pending, word(r.Status)),
		isSync: string(r.Background) == "false",
	}
}

// read reads the numbers as an API means them; ok is false where the input is not told.
func (u *counts) read(api API) (t tokens, ok bool) {
	if api == Anthropic {
		t.input, ok = firstOf(u.Input, u.BedrockInput)
		written, _ := firstOf(u.CacheWrite, u.BedrockWrite)
		t.input += written
		t.cached, _ = firstOf(u.CacheRead, u.BedrockRead)
		t.output, _ = firstOf(u.Output, u.BedrockOutput)
		return t, ok
	}
	t.input, ok = firstOf(u.Prompt, u.Input, u.BedrockInput)
	t.cached, _ = firstOf(cachedIn(u.PromptDetails), cachedIn(u.InputDetails))
	t.cached = min(t.cached, t.input)
	t.input -= t.cached
	t.output, _ = firstOf(u.Completion, u.Output, u.BedrockOutput) // an embedding has none
	return t, ok
}

// cachedIn is how many tokens of the input were read from the cache, as OpenAI tells it.
func cachedIn(details json.RawMessage) json.RawMessage {
	object, _ := members(details)
	return object["cached_tokens"]
}

// firstOf returns the first number that is there.
func firstOf(values ...json.RawMessage) (n int64, ok bool) {
	for _, value := range values {
		if n, ok = amount(value); ok {
			return n, true
		}
	}
	return 0, false
}

// spent is what a request with a good answer has used.
type spent struct {
	tokens
	told

	reported bool         // the answer told the tokens; else they are estimated
	charged  shaper.Units // nil: as much as was reserved
}

// charge takes the usage that an answer tells, and learns from it. Without usage it estimates. An answer that was cut before its usage, or whose
// usage comes later, is charged what was reserved.
func (c Config) charge(r *request, answer *shaper.Answer, learned *Learned) (s spent) {
	said := readReport(answer.Body)
	s.told = said.told()
	if s.tokens, s.reported = said.usage(c.API); s.reported {
		s.charged = s.counted(c.API)
		s.teach(r, learned)
	} else {
		estimate := c.estimate(r, learned)
		s.input, s.output = estimate[shaper.UnitInput], estimate[shaper.UnitOutput]
		if answer.Cut || s.isOpen {
			return s
		}
		s.output = wholeTokens(float64(answerText(answer.Body)) * tokensPerByte)
		if r.maximum != unbounded {
			s.output = min(s.output, r.maximum)
		}
		s.charged = s.counted(c.API)
	}
	if c.CountMaxTokens {
		s.charged[shaper.UnitOutput] = max(s.charged[shaper.UnitOutput], r.maximum)
	}
	return s
}

// teach has learned take in the usage, unless it is of a batch: that is of many requests.
func (s *spent) teach(r *request, learned *Learned) {
	if !s.isBatch() {
		learned.note(r, s.charged)
	}
}

// use is what a request has used of its model. A maximum that is charged was not used.
func (s spent) use(api API, model string) *shaper.Use {
	used := s.counted(api)
	return &shaper.Use{Model: model, Input: used[shaper.UnitInput], Output: used[shaper.UnitOutput]}
}

// answerText is how many bytes of an answer are text that a model wrote: all of an answer that is not JSON of the APIs, and nothing
// of the vectors that an embedding answers.
func answerText(answer []byte) int64 {
	object, _ := members(answer)
	if object == nil {
		return int64(len(answer))
	}
	var made content
	for _, name := range []string{"choices", "output", "content"} {
		made.count(object[name])
	}
	if made.text == 0 && !isGiven(object["data"]) {
		return int64(len(answer))
	}
	return made.text
}
