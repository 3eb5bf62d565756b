package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// maxEvent bounds an event of a stream, in bytes: the last one of OpenAI's responses has all that was made, images too. Behind one that is longer
// nothing is read.
const maxEvent = 16 << 20

var newline = []byte("\n") //nolint:gochecknoglobals // a constant

// stream reads what an answer that streams has used, while the answer passes. It is an SSE stream (WHATWG HTML, 9.2) of OpenAI's chat completions,
// completions or responses, or of Anthropic's messages. It is not safe for concurrent use.
type stream struct {
	api   API
	hides bool // the chunk with the usage: the client has not asked for it

	line  []byte // that has not ended yet
	event []byte // its lines so far, as they came; only where something may be hidden
	data  []byte // what they say

	isBlind bool // an event was too long, and nothing is read from there on

	told    told   // what the first event with an id says of the answer
	usage   counts // what was told so far: later words replace earlier ones
	isTold  bool
	text    int64     // bytes of the output so far
	isEnded bool      // the last event of an answer came
	fault   *apiError // that an event told; nil: none did
}

// pass takes in what came, and returns what is to be passed on at once. Where the usage is hidden, that is whole events.
func (s *stream) pass(came []byte) []byte {
	if s.isBlind {
		return came
	}
	var passed []byte
	for rest := came; len(rest) > 0 && !s.isBlind; {
		part, after, isLine := bytes.Cut(rest, newline)
		if isLine {
			part = rest[:len(part)+1]
		}
		rest = after
		s.line = append(s.line, part...)
		if s.hides {
			s.event = append(s.event, part...)
		}
		switch {
		case len(s.line)+len(s.data) > maxEvent:
			s.isBlind = true
			passed = append(append(passed, s.event...), rest...)
			s.line, s.data, s.event = nil, nil, nil
		case isLine && s.endLine():
			if !s.endEvent() {
				passed = append(passed, s.event...)
			}
			s.event = s.event[:0]
		}
	}
	if !s.hides {
		return came
	}
	return passed
}

// rest returns what is to be passed on when the stream has ended: an event that did not end.
func (s *stream) rest() []byte { return s.event }

// endLine takes in a line, and reports whether it ends the event.
func (s *stream) endLine() bool {
	line := bytes.TrimRight(s.line, "\r\n")
	ends := len(line) == 0
	if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		if len(s.data) > 0 {
			s.data = append(s.data, '\n')
		}
		s.data = append(s.data, bytes.TrimPrefix(value, []byte(" "))...)
	}
	s.line = s.line[:0]
	return ends
}

// endEvent reads the event, and reports whether it is hidden.
func (s *stream) endEvent() (hidden bool) {
	if len(s.data) > 0 {
		hidden = s.read(s.data) && s.hides
	}
	s.data = s.data[:0]
	return hidden
}

// chunk is what is read of an event, of any of the APIs.
type chunk struct {
	report

	Type     string          `json:"type"`
	Choices  []choice        `json:"choices"`
	Delta    json.RawMessage `json:"delta"`
	Message  *report         `json:"message"`
	Response *report         `json:"response"`
	Code     json.RawMessage `json:"code"` // of an error of a response
}

type choice struct {
	Text  string          `json:"text"`
	Error json.RawMessage `json:"error"`
	Delta struct {
		Content   string `json:"content"`
		Refusal   string `json:"refusal"`
		Reasoning string `json:"reasoning_content"`
		ToolCalls []struct {
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"delta"`
}

// delta is that of Anthropic.
type delta struct {
	Text        string `json:"text"`
	Thinking    string `json:"thinking"`
	PartialJSON string `json:"partial_json"`
}

// read reads an event. It reports whether that only tells the usage of a chat.
func (s *stream) read(data []byte) (onlyUsage bool) {
	if string(data) == "[DONE]" {
		s.isEnded = true
		return false
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); !other { // a member of another kind, such as a message in words, hides no other
			return false
		}
	}
	switch c.Type {
	case "message_stop", "response.completed", "response.incomplete", "response.failed":
		s.isEnded = true
	}
	if fault := c.fault(); fault != nil {
		s.fault = fault
	}
	for _, said := range []*report{&c.report, c.Message, c.Response} {
		if said != nil {
			s.tell(said)
		}
	}
	s.text += c.output()
	return c.Usage != nil && len(c.Choices) == 0 && c.Type == ""
}

// fault is the error that an event tells, nil if it tells none.
func (c *chunk) fault() *apiError {
	switch c.Type {
	case "response.failed":
		if c.Response != nil {
			if e := readError(c.Response.Error); e != nil {
				return e
			}
		}
		return &apiError{}
	case "error": // of a message, of a response
		if e := readError(c.Error); e != nil {
			return e
		}
		return &apiError{Code: c.Code}
	case "": // of a chat
		if e := readError(c.Error); e != nil {
			return e
		}
		for _, one := range c.Choices {
			if e := readError(one.Error); e != nil {
				return e
			}
		}
	}
	return nil
}

// output is how many bytes of output an event has.
func (c *chunk) output() (n int64) {
	add := func(parts ...string) {
		for _, part := range parts {
			n += int64(len(part))
		}
	}
	for _, one := range c.Choices {
		add(one.Text, one.Delta.Content, one.Delta.Refusal, one.Delta.Reasoning)
		for _, call := range one.Delta.ToolCalls {
			add(call.Function.Name, call.Function.Arguments)
		}
	}
	var text string
	var part delta
	switch {
	case strings.HasPrefix(c.Type, "response.") && json.Unmarshal(c.Delta, &text) == nil:
		add(text)
	case c.Type == "content_block_delta" && json.Unmarshal(c.Delta, &part) == nil:
		add(part.Text, part.Thinking, part.PartialJSON)
	}
	return n
}

// tell takes in what an event says of the usage. Anthropic tells the input first and the output last, and each word is of the answer so far.
func (s *stream) tell(said *report) {
	if s.told.id == "" {
		s.told = said.told()
	}
	u := said.Usage
	if u == nil {
		return
	}
	for _, one := range []struct{ from, to *json.RawMessage }{
		{&u.Prompt, &s.usage.Prompt}, {&u.PromptDetails, &s.usage.PromptDetails}, {&u.Completion, &s.usage.Completion},
		{&u.Input, &s.usage.Input}, {&u.InputDetails, &s.usage.InputDetails}, {&u.Output, &s.usage.Output},
		{&u.CacheWrite, &s.usage.CacheWrite}, {&u.CacheRead, &s.usage.CacheRead},
		{&u.BedrockInput, &s.usage.BedrockInput}, {&u.BedrockOutput, &s.usage.BedrockOutput},
		{&u.BedrockWrite, &s.usage.BedrockWrite}, {&u.BedrockRead, &s.usage.BedrockRead},
	} {
		if isGiven(*one.from) {
			*one.to = append(json.RawMessage{}, *one.from...)
		}
	}
	s.isTold = true
}

// tokens are those that the stream has told. ok is false where the answer is not whole, or tells none.
func (s *stream) tokens() (t tokens, ok bool) {
	if !s.isTold {
		return t, false
	}
	t, ok = s.usage.read(s.api)
	return t, ok && (s.isEnded || s.api == OpenAI) // OpenAI tells them once, at the end
}

// soFar are those that it has told of an answer that is not whole.
func (s *stream) soFar() (t tokens, ok bool) {
	if !s.isTold {
		return t, false
	}
	return s.usage.read(s.api)
}

// chargeStream is charge of an answer that streamed. Of one that was cut, the input counts as told or estimated, and the output by the text that
// came, at least as much as was told. One with an event that is too long is charged what was reserved.
func (c Config) chargeStream(r *request, answer *stream, learned *Learned) (s spent) {
	s.told = answer.told
	s.isOpen = !answer.isEnded // a response in the background goes on, and is asked for again
	if s.tokens, s.reported = answer.tokens(); s.reported {
		s.charged = s.counted(c.API)
		s.teach(r, learned)
	} else {
		if answer.isBlind {
			s.tokens = tokens{}
			return s
		}
		var known bool
		if s.tokens, known = answer.soFar(); !known {
			s.input = c.estimate(r, learned)[shaper.UnitInput]
		}
		s.output = max(s.output, wholeTokens(float64(answer.text)*tokensPerByte))
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
