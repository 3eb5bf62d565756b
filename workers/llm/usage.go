package llm

import (
	"encoding/json"

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
}

// Usage returns what an answer says of the tokens that count against the provider's limits; ok is false if it says nothing.
//
// OpenAI counts input that it has cached as any other. Anthropic counts input that it writes into its cache, and none that it reads there.
func Usage(api API, answer []byte) (used shaper.Units, ok bool) {
	t, ok := usage(api, answer)
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

// usage reads the tokens that an answer tells.
func usage(api API, answer []byte) (t tokens, ok bool) {
	var body struct {
		Usage *counts `json:"usage"`
	}
	if json.Unmarshal(answer, &body) != nil || body.Usage == nil {
		return t, false
	}
	return body.Usage.read(api)
}

// read reads the numbers as an API means them; ok is false where the input is not told.
func (u *counts) read(api API) (t tokens, ok bool) {
	if api == Anthropic {
		t.input, ok = amount(u.Input)
		written, _ := amount(u.CacheWrite)
		t.input += written
		t.cached, _ = amount(u.CacheRead)
		t.output, _ = amount(u.Output)
		return t, ok
	}
	t.input, ok = firstOf(u.Prompt, u.Input)
	t.cached, _ = firstOf(cachedIn(u.PromptDetails), cachedIn(u.InputDetails))
	t.cached = min(t.cached, t.input)
	t.input -= t.cached
	t.output, _ = firstOf(u.Completion, u.Output) // an embedding has none
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
	reported bool         // the answer told the tokens; else they are estimated
	charged  shaper.Units // nil: as much as was reserved
}

// charge takes the usage that an answer tells, and learns from it. Without usage it estimates. An answer that was cut before its usage is
// charged what was reserved.
func (c Config) charge(r *request, answer *shaper.Answer, learned *Learned) (s spent) {
	if s.tokens, s.reported = usage(c.API, answer.Body); s.reported {
		s.charged = s.counted(c.API)
		learned.note(r, s.charged)
	} else {
		estimate := c.estimate(r, learned)
		s.input, s.output = estimate[shaper.UnitInput], estimate[shaper.UnitOutput]
		if answer.Cut {
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
	var made request
	for _, name := range []string{"choices", "output", "content"} {
		made.count(object[name])
	}
	if made.text == 0 && !isGiven(object["data"]) {
		return int64(len(answer))
	}
	return made.text
}
