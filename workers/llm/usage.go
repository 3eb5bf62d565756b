package llm

import (
	"encoding/json"
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// counts are the numbers of tokens in a response, by their names in the APIs. Each API has some of them.
type counts map[string]int64

// Names of counts.
const (
	promptTokens, promptDetails, completionTokens = "prompt_tokens", "prompt_tokens_details", "completion_tokens"
	inputTokens, inputDetails, outputTokens       = "input_tokens", "input_tokens_details", "output_tokens"
	cacheWrite, cacheRead                         = "cache_creation_input_tokens", "cache_read_input_tokens"
	bedrockInput, bedrockOutput                   = "inputTokens", "outputTokens" // Converse of Bedrock
	bedrockWrite, bedrockRead                     = "cacheWriteInputTokens", "cacheReadInputTokens"
)

var (
	countNames = namesOf([]string{ //nolint:gochecknoglobals // a constant
		promptTokens, promptDetails, completionTokens, inputTokens, inputDetails, outputTokens, cacheWrite, cacheRead, bedrockInput, bedrockOutput, bedrockWrite, bedrockRead,
	})
	cachedNames = namesOf([]string{"cached_tokens"}) //nolint:gochecknoglobals // a constant
)

// countsIn reads the numbers of a member "usage", nil if that is no object. Members that are no numbers are left out. Of the details it reads only the
// input from the cache, as OpenAI reports it.
func countsIn(usage json.RawMessage) counts {
	object, _ := members(usage, countNames)
	if object == nil {
		return nil
	}
	c := counts{}
	for name, value := range object {
		if name == promptDetails || name == inputDetails {
			details, _ := members(value, cachedNames)
			value = details["cached_tokens"]
		}
		if n, ok := amount(value); ok {
			c[name] = n
		}
	}
	return c
}

// Usage returns the tokens of a response that count against the provider's limits; ok is false if it reports none.
//
// OpenAI counts input that it has cached as any other. Anthropic counts input that it writes into its cache, and none that it reads there.
func Usage(api API, answer []byte) (used shaper.Units, ok bool) {
	t, ok := readReport(answer).usage(api)
	if !ok {
		return nil, false
	}
	return t.counted(api), true
}

// tokens are the tokens of a request and its response, each as one number.
type tokens struct {
	input  int64 // without the part that was read from the provider's cache
	cached int64
	output int64
}

// counted returns the tokens that count against the limits of an API.
func (t tokens) counted(api API) shaper.Units {
	input := t.input
	if api == OpenAI {
		input += t.cached
	}
	return shaper.Units{shaper.UnitInput: atMost(input), shaper.UnitOutput: t.output}
}

// report is the metadata of a response, or of an event of a stream.
type report struct {
	counts counts // nil: it reports no usage
	meta   metadata
	error  json.RawMessage
}

// reportNames are the members of a report.
var reportNames = namesOf([]string{"usage", "id", "object", "model", "status", "error", "background"}) //nolint:gochecknoglobals // a constant

func readReport(response []byte) report {
	object, _ := members(response, reportNames)
	return reportOf(object)
}

// reportOf reads a report from the members of an object; nothing of nil.
func reportOf(object map[string]json.RawMessage) report {
	return report{counts: countsIn(object["usage"]), error: object["error"], meta: metadata{
		id: textOf(object["id"]), model: short(textOf(object["model"])), object: textOf(object["object"]),
		isOpen: slices.Contains(pending, textOf(object["status"])), isSync: string(object["background"]) == "false",
	}}
}

// usage reads the tokens that a response reports.
func (r report) usage(api API) (t tokens, ok bool) {
	return r.counts.read(api)
}

// metadata is what a response reports about itself, besides its usage.
type metadata struct {
	id     string // "" none
	model  string // "" none
	object string // its type; "" if it names none
	isOpen bool   // the model still works, and the usage comes later
	isSync bool   // the response says that its request waited for it
}

// isBatch reports whether it is a batch of OpenAI, which has limits of its own.
func (t metadata) isBatch() bool { return t.object == "batch" }

// isPolled reports whether a later request may be the one that reports the usage. Other responses, such as a stored chat, have reported it before they
// are read.
func (t metadata) isPolled() bool {
	return !t.isSync && (t.object == "" || t.isOfItself())
}

// isOfItself reports whether it is of a kind that may be made in the background.
func (t metadata) isOfItself() bool { return t.object == "response" || t.object == "thread.run" }

// pending are the statuses of responses and runs whose model still works.
var pending = []string{"queued", "in_progress", "requires_action", "cancelling"}

// read returns the numbers as an API means them; ok is false if there is no input.
func (c counts) read(api API) (t tokens, ok bool) {
	if api == Anthropic {
		t.input, ok = c.first(inputTokens, bedrockInput)
		written, _ := c.first(cacheWrite, bedrockWrite)
		t.input += written
		t.cached, _ = c.first(cacheRead, bedrockRead)
		t.output, _ = c.first(outputTokens, bedrockOutput)
		return t, ok
	}
	t.input, ok = c.first(promptTokens, inputTokens, bedrockInput)
	t.cached, _ = c.first(promptDetails, inputDetails)
	t.cached = min(t.cached, t.input)
	t.input -= t.cached
	t.output, _ = c.first(completionTokens, outputTokens, bedrockOutput) // an embedding has none
	return t, ok
}

// first returns the first number that is there.
func (c counts) first(names ...string) (n int64, ok bool) {
	for _, name := range names {
		if n, ok = c[name]; ok {
			return n, true
		}
	}
	return 0, false
}

// spent is the usage of a request with a good response.
type spent struct {
	tokens
	metadata

	reported bool         // the response reported the tokens; otherwise they are estimated
	charged  shaper.Units // nil: as much as was reserved
}

// charge returns the usage that a response reports, and adds it to the learned estimates. Without usage it estimates. A response that was cut before its
// usage, or whose usage comes later, is charged what was reserved.
func (c Config) charge(r *request, answer *shaper.Answer, learned *LearnedEstimates) (s spent) {
	said := readReport(answer.Body)
	s.metadata = said.meta
	if s.tokens, s.reported = said.usage(c.API); s.reported {
		s.charged = s.counted(c.API)
		s.updateEstimates(r, learned)
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

// updateEstimates adds the usage to the learned estimates, except for a batch, whose usage is of many requests.
func (s *spent) updateEstimates(r *request, learned *LearnedEstimates) {
	if !s.isBatch() {
		learned.note(r, s.charged)
	}
}

// use returns a request's use of its model. A maximum that is charged was not used.
func (s spent) use(api API, model string) *shaper.Use {
	used := s.counted(api)
	return &shaper.Use{Model: model, Input: used[shaper.UnitInput], Output: used[shaper.UnitOutput]}
}

// answerNames are the members of a response that hold a model's output.
var answerNames = namesOf([]string{"choices", "output", "content", "data"}) //nolint:gochecknoglobals // a constant

// answerText returns how many bytes of a response a model wrote: all of a response that is not JSON of the APIs, and nothing of the vectors of an
// embedding.
func answerText(answer []byte) int64 {
	object, _ := members(answer, answerNames)
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
