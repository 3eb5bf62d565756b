package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"strings"

	"github.com/tundish-io/tundish/internal/jsonscan"
	"github.com/tundish-io/tundish/shaper"
)

// maxEvent bounds an event of a stream with all its lines, in bytes. After a longer event nothing is parsed: the rest of the stream passes on unchanged.
const maxEvent = 1 << 20

// firstEvent is the buffer for events that every stream has, in bytes.
const firstEvent = 4 << 10

// stream reads the usage of a streaming response while the response passes. It is an SSE stream (WHATWG HTML, 9.2) of OpenAI's chat completions,
// completions or responses, or of Anthropic's messages. It is not safe for concurrent use.
type stream struct {
	api   API
	hides bool           // the chunk with the usage: the client has not requested it
	takes func(int) bool // reserves memory for events; nil: there is always some

	event []byte // its lines so far, unchanged
	line  int    // where its last line begins in event

	isBlind bool // an event was too long, and nothing is read from there on

	meta    metadata  // the metadata of the first event with an id
	usage   counts    // reported so far: later numbers replace earlier ones; nil: none
	text    int64     // bytes of the output so far
	isEnded bool      // the last event of a response arrived
	fault   *apiError // the error of an event; nil: none
}

// pass reads the bytes that arrived, and returns the bytes to pass on at once. If the usage is hidden, it returns whole events only.
func (s *stream) pass(came []byte) []byte {
	var passed []byte
	for rest := came; len(rest) > 0 && !s.isBlind; {
		n := bytes.IndexByte(rest, '\n') + 1
		part := rest[:cmp.Or(n, len(rest))]
		if !s.hasRoom(len(part)) {
			s.isBlind = true
			passed = append(append(passed, s.event...), rest...)
			s.event = nil
			break
		}
		s.event, rest = append(s.event, part...), rest[len(part):]
		if n > 0 && s.endLine() {
			if hidden := s.read(s.event); !hidden && s.hides {
				passed = append(passed, s.event...)
			}
			s.event, s.line = s.event[:0], 0
		}
	}
	if !s.hides || s.isBlind && passed == nil {
		return came
	}
	return passed
}

// hasRoom makes room for n bytes more of the event, and reports whether there is some.
func (s *stream) hasRoom(n int) bool {
	need, room := len(s.event)+n, cap(s.event)
	if need <= room {
		return true
	}
	larger := min(max(need, 2*room, firstEvent), maxEvent)
	if need > maxEvent || larger > firstEvent && s.takes != nil && !s.takes(larger-room) {
		return false
	}
	s.event = append(make([]byte, 0, larger), s.event...)
	return true
}

// rest returns the bytes to pass on when the stream has ended: an incomplete event.
func (s *stream) rest() []byte {
	if !s.hides {
		return nil
	}
	return s.event
}

// endLine ends the last line, and reports whether that ends the event: it is empty.
func (s *stream) endLine() bool {
	line := s.event[s.line:]
	s.line = len(s.event)
	return len(bytes.TrimRight(line, "\r\n")) == 0
}

// read reads an event, and reports whether it is hidden. Most events have one line of data, which is read in place.
func (s *stream) read(event []byte) (hidden bool) {
	var data []byte
	lines := 0
	for line := range bytes.Lines(event) {
		value, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:"))
		if !ok {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		switch lines++; lines {
		case 1:
			data = value
		case 2:
			data = append(append(make([]byte, 0, len(event)), data...), '\n')
			data = append(data, value...)
		default:
			data = append(append(data, '\n'), value...)
		}
	}
	return len(data) > 0 && s.readData(data) && s.hides
}

// chunk holds the parsed members of an event, of any of the APIs.
type chunk struct {
	report

	kind     string
	choices  json.RawMessage
	delta    json.RawMessage
	code     json.RawMessage // of an error of a response
	message  report
	response report
}

// chunkNames are the members of a chunk.
var chunkNames = func() names { //nolint:gochecknoglobals // a constant
	all := namesOf([]string{"type", "choices", "delta", "message", "response", "code"})
	maps.Copy(all, reportNames)
	return all
}()

// readData parses the data of an event. It reports whether the event only has the usage of a chat.
func (s *stream) readData(data []byte) (onlyUsage bool) {
	if string(data) == "[DONE]" {
		s.isEnded = true
		return false
	}
	object, _ := members(data, chunkNames)
	if object == nil {
		return false
	}
	c := chunk{
		report: reportOf(object), kind: textOf(object["type"]), choices: object["choices"], delta: object["delta"], code: object["code"],
		message: readReport(object["message"]), response: readReport(object["response"]),
	}
	switch c.kind {
	case "message_stop", "response.completed", "response.incomplete", "response.failed":
		s.isEnded = true
	}
	if fault := c.fault(); fault != nil {
		s.fault = fault
	}
	for _, said := range []*report{&c.report, &c.message, &c.response} {
		s.readReport(said)
	}
	s.text += c.output()
	return c.counts != nil && !hasAny(c.choices) && c.kind == ""
}

// fault returns the error in an event, nil if there is none.
func (c *chunk) fault() (e *apiError) {
	switch c.kind {
	case "response.failed":
		if e = readError(c.response.error); e == nil {
			e = &apiError{}
		}
	case "error": // of a message, of a response
		if e = readError(c.error); e == nil {
			e = &apiError{code: word(c.code)}
		}
	case "": // of a chat
		if e = readError(c.error); e == nil {
			jsonscan.Elements(c.choices, func(choice []byte) bool {
				e = readError(errorOfChoice(choice))
				return e == nil
			})
		}
	}
	return e
}

// Names of the members that hold a model's output as text: of a choice and its delta, of its tool calls, and of a delta of Anthropic.
var (
	choiceTexts = namesOf([]string{"text"})                                    //nolint:gochecknoglobals // a constant
	deltaTexts  = namesOf([]string{"content", "refusal", "reasoning_content"}) //nolint:gochecknoglobals // a constant
	callTexts   = namesOf([]string{"name", "arguments"})                       //nolint:gochecknoglobals // a constant
	blockTexts  = namesOf([]string{"text", "thinking", "partial_json"})        //nolint:gochecknoglobals // a constant
)

// output returns the bytes of output in an event.
func (c *chunk) output() (n int64) {
	jsonscan.Elements(c.choices, func(choice []byte) bool {
		n += textsIn(choice, choiceTexts, "delta", func(delta []byte) int64 {
			return textsIn(delta, deltaTexts, "tool_calls", outputOfCalls)
		})
		return true
	})
	switch {
	case strings.HasPrefix(c.kind, "response."):
		n += jsonscan.Len(c.delta)
	case c.kind == "content_block_delta":
		n += textsIn(c.delta, blockTexts, "", nil)
	}
	return n
}

func outputOfCalls(calls []byte) (n int64) {
	jsonscan.Elements(calls, func(call []byte) bool {
		n += textsIn(call, nil, "function", func(function []byte) int64 { return textsIn(function, callTexts, "", nil) })
		return true
	})
	return n
}

// textsIn returns the bytes of the texts among the members of an object. For the member name it adds what of returns.
func textsIn(object []byte, texts names, name string, of func(value []byte) int64) (n int64) {
	jsonscan.Members(object, func(quoted, value []byte) {
		switch {
		case texts.find(quoted) != "":
			n += jsonscan.Len(value)
		case of != nil && jsonscan.Is(quoted, name):
			n += of(value)
		}
	})
	return n
}

// readReport reads the usage in an event. Anthropic reports the input first and the output last, each as the total so far.
func (s *stream) readReport(said *report) {
	if s.meta.id == "" {
		s.meta = said.meta
	}
	if said.counts != nil && s.usage == nil {
		s.usage = counts{}
	}
	maps.Copy(s.usage, said.counts)
}

// tokens returns the reported usage. ok is false if the response is incomplete or reports none.
func (s *stream) tokens() (t tokens, ok bool) {
	if s.usage == nil {
		return t, false
	}
	t, ok = s.usage.read(s.api)
	return t, ok && (s.isEnded || s.api == OpenAI && !s.isBlind) // OpenAI reports them once, at the end
}

// soFar returns the reported usage of an incomplete response.
func (s *stream) soFar() (t tokens, ok bool) {
	if s.usage == nil {
		return t, false
	}
	return s.usage.read(s.api)
}

// chargeStream is charge for a streaming response. If the stream was cut, input is what was reported or estimated. Output is computed from the text that
// arrived, and is at least what was reported. A stream with an event that is too long is charged what was reserved.
func (c Config) chargeStream(r *request, answer *stream, learned *LearnedEstimates) (s spent) {
	s.metadata = answer.meta
	s.isOpen = !answer.isEnded // a background response goes on, and is polled
	if s.tokens, s.reported = answer.tokens(); s.reported {
		s.charged = s.counted(c.API)
		s.updateEstimates(r, learned)
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
