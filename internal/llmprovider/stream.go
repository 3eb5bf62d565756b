package llmprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// StreamFault is a fault of a stream after some of its pieces: see [Provider.FailStreams].
type StreamFault struct {
	After int // pieces
	Kind  FaultKind
}

// FaultKind is a way in which a stream fails.
type FaultKind int

// The ways.
const (
	StreamCut        FaultKind = iota + 1 // the connection breaks
	StreamHangs                           // no more bytes are sent
	StreamOverloaded                      // an error event, as Anthropic's 529 once the response has begun
	UsageTwice                            // the usage is also sent before the end
)

// FailStreams makes every stream that begins from now on fail; the zero fault heals them.
func (p *Provider) FailStreams(f StreamFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streamFault = f
}

// words returns a text of n tokens: three tokens have ten bytes, which is the rule of thumb of the worker llm.
func words(n int64) string {
	return strings.Repeat("of to the ", int(n/3)) + []string{"", "of ", "of to "}[n%3] //nolint:mnd // three words
}

// events writes the events of a stream.
type events struct {
	w    http.ResponseWriter
	call *Call
	p    *Provider
	text string // so far
}

// stream writes the response to a call in pieces, each when its output is charged, and each after the previous one is written. It records the pieces
// that the client received.
func (p *Provider) stream(w http.ResponseWriter, r *http.Request, c *Call) {
	p.mu.Lock()
	fault := p.streamFault
	p.mu.Unlock()
	e := &events{w: w, call: c, p: p}
	w.Header().Set("Content-Type", "text/event-stream")
	e.begin()
	for n := int64(1); n <= pieces; n++ {
		select {
		case <-time.After(p.settings.CallTime / pieces):
		case <-r.Context().Done():
			e.note(func() { c.GoneAfter = int(n) })
			return
		}
		if fault.Kind != 0 && int(n) > fault.After && e.fail(r, fault.Kind) {
			return
		}
		part := c.Output*n/pieces - c.Output*(n-1)/pieces
		e.piece(words(part))
		e.note(func() { c.Sent += part })
	}
	e.end()
	e.note(func() { c.Answered = true })
}

func (e *events) note(change func()) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	change()
}

// fail reports whether the stream is over.
func (e *events) fail(r *http.Request, kind FaultKind) bool {
	switch kind {
	case StreamCut:
		panic(http.ErrAbortHandler)
	case StreamHangs:
		<-r.Context().Done()
		return true
	case StreamOverloaded:
		e.write("error", object{"type": "error", "error": object{"type": "overloaded_error", "message": "Overloaded"}})
		return true
	default:
		e.usage()
		return false
	}
}

// write writes an event and sends it. OpenAI's have no name.
func (e *events) write(name string, body any) {
	text, _ := json.Marshal(body) // texts and numbers always marshal
	if name != "" {
		_, _ = fmt.Fprintf(e.w, "event: %s\n", name) // the client may have disconnected
	}
	_, _ = fmt.Fprintf(e.w, "data: %s\n\n", text)
	_ = http.NewResponseController(e.w).Flush()
}

func (e *events) begin() {
	switch e.call.kind {
	case responses:
		created := response(e.call, "", "in_progress")
		created["usage"], created["output"] = nil, []object{}
		e.write("response.created", object{"type": "response.created", "sequence_number": 0, "response": created})
		return
	case messages:
		start := message(e.call, "")
		start["content"], start["stop_reason"] = []object{}, nil
		start["usage"].(object)["output_tokens"] = 1
		e.write("message_start", object{"type": "message_start", "message": start})
		e.write("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}})
		return
	default:
	}
	e.chunk([]object{{"index": 0, "delta": object{"role": "assistant", "content": ""}, "finish_reason": nil}}, nil)
}

func (e *events) piece(text string) {
	e.text += text
	switch e.call.kind {
	case responses:
		e.write("response.output_text.delta", object{
			"type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_" + e.call.ID, "output_index": 0, "content_index": 0, "delta": text,
		})
		return
	case messages:
		e.write("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": text}})
		return
	default:
	}
	e.chunk([]object{{"index": 0, "delta": object{"content": text}, "finish_reason": nil}}, nil)
}

// chunk writes a chunk of a chat.
func (e *events) chunk(choices []object, usage any) {
	body := completion(e.call, "")
	body["object"], body["choices"] = "chat.completion.chunk", choices
	delete(body, "usage")
	if e.call.asksUsage {
		body["usage"] = usage
	}
	e.write("", body)
}

// usage sends the usage so far.
func (e *events) usage() {
	if e.call.kind == messages {
		e.write("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": ended(e.call, "end_turn", "max_tokens"), "stop_sequence": nil},
			"usage": object{"output_tokens": e.call.Sent}})
		return
	}
	if e.call.asksUsage {
		e.chunk([]object{}, object{"prompt_tokens": e.call.Input, "completion_tokens": e.call.Sent, "total_tokens": e.call.Input + e.call.Sent})
	}
}

func (e *events) end() {
	switch e.call.kind {
	case responses:
		e.write("response.completed", object{"type": "response.completed", "sequence_number": pieces + 1, "response": response(e.call, e.text, "completed")})
		return
	case messages:
		e.write("content_block_stop", object{"type": "content_block_stop", "index": 0})
		e.usage()
		e.write("message_stop", object{"type": "message_stop"})
		return
	default:
	}
	e.chunk([]object{{"index": 0, "delta": object{}, "finish_reason": ended(e.call, "stop", "length")}}, nil)
	e.usage()
	_, _ = fmt.Fprint(e.w, "data: [DONE]\n\n")
}
