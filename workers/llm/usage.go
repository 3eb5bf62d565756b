package llm

import (
	"encoding/json"

	"github.com/tundish-io/tundish/shaper"
)

// counts are the numbers of tokens in an answer. Each API names some of them.
type counts struct {
	Prompt     json.RawMessage `json:"prompt_tokens"`
	Completion json.RawMessage `json:"completion_tokens"`
	Input      json.RawMessage `json:"input_tokens"`
	Output     json.RawMessage `json:"output_tokens"`
	CacheWrite json.RawMessage `json:"cache_creation_input_tokens"`
}

// Usage returns what an answer says of the tokens that count against the provider's limits; ok is false if it says nothing.
//
// OpenAI counts input that it has cached as any other. Anthropic counts input that it writes into its cache, and none that it reads there.
func Usage(api API, answer []byte) (used shaper.Units, ok bool) {
	var body struct {
		Usage *counts `json:"usage"`
	}
	if json.Unmarshal(answer, &body) != nil || body.Usage == nil {
		return nil, false
	}
	u := body.Usage
	input, output := []json.RawMessage{u.Prompt, u.Input}, []json.RawMessage{u.Completion, u.Output}
	if api == Anthropic {
		input, output = []json.RawMessage{u.Input}, []json.RawMessage{u.Output}
	}
	in, named := firstOf(input)
	out, _ := firstOf(output) // an embedding has none
	if !named {
		return nil, false
	}
	if api == Anthropic {
		written, _ := amount(u.CacheWrite)
		in += written
	}
	return shaper.Units{shaper.UnitInput: atMost(in), shaper.UnitOutput: out}, true
}

// firstOf returns the first number that is there.
func firstOf(values []json.RawMessage) (n int64, ok bool) {
	for _, value := range values {
		if n, ok = amount(value); ok {
			return n, true
		}
	}
	return 0, false
}

// charge is what a request with a good answer has used. It takes the usage that the answer tells, and learns from it. Without usage it
// estimates. If the answer was cut before its usage, the charge is nil: as much as was reserved.
func (c Config) charge(r *request, answer *shaper.Answer, learned *Learned) shaper.Units {
	used, ok := Usage(c.API, answer.Body)
	switch {
	case ok:
		learned.note(r, used)
	case answer.Cut:
		return nil
	default:
		output := tokens(float64(answerText(answer.Body)) * tokensPerByte)
		if r.maximum != unbounded {
			output = min(output, r.maximum)
		}
		used = shaper.Units{shaper.UnitInput: c.estimate(r, learned)[shaper.UnitInput], shaper.UnitOutput: output}
	}
	if c.CountMaxTokens {
		used[shaper.UnitOutput] = max(used[shaper.UnitOutput], r.maximum)
	}
	return used
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
