package llmprovider

import (
	"encoding/json"
	"net/http"
	"strings"
)

// mostWords bounds the text of a response, which has a word for each token.
const mostWords = 4096

// write writes the whole response to a call.
func (p *Provider) write(w http.ResponseWriter, c *Call) {
	text := strings.TrimSpace(strings.Repeat("word ", int(min(c.Output, mostWords))))
	var body object
	switch c.kind {
	case messages:
		body = message(c, text)
	case responses:
		body = response(c, text, "completed")
	case embeddings:
		body = embedding(c)
	default:
		body = completion(c, text)
	}
	w.Header().Set("Content-Type", "application/json")
	if json.NewEncoder(w).Encode(body) != nil {
		return // the client has disconnected
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.Answered = true
}

type object = map[string]any

func completion(c *Call, text string) object {
	return object{
		"id": "chatcmpl-" + c.name(), "object": "chat.completion", "created": c.At.Unix(), "model": c.Model,
		"choices": []object{{
			"index": 0, "message": object{"role": "assistant", "content": text}, "finish_reason": ended(c, "stop", "length"),
		}},
		"usage": object{"prompt_tokens": c.Input, "completion_tokens": c.Output, "total_tokens": c.Input + c.Output},
	}
}

// response is a response of OpenAI. Its usage covers the text so far.
func response(c *Call, text, status string) object {
	return object{
		"id": "resp_" + c.name(), "object": "response", "created_at": c.At.Unix(), "model": c.Model, "status": status, "error": nil,
		"output": []object{{
			"type": "message", "id": "msg_" + c.name(), "role": "assistant", "status": status,
			"content": []object{{"type": "output_text", "text": text, "annotations": []object{}}},
		}},
		"usage": object{"input_tokens": c.Input, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": c.Output, "total_tokens": c.Input + c.Output},
	}
}

func embedding(c *Call) object {
	return object{
		"object": "list", "model": c.Model, "data": []object{{"object": "embedding", "index": 0, "embedding": []float64{0.25, -0.5}}},
		"usage": object{"prompt_tokens": c.Input, "total_tokens": c.Input},
	}
}

func message(c *Call, text string) object {
	return object{
		"id": "msg_" + c.name(), "type": "message", "role": "assistant", "model": c.Model,
		"content":     []object{{"type": "text", "text": text}},
		"stop_reason": ended(c, "end_turn", "max_tokens"), "stop_sequence": nil,
		"usage": object{"input_tokens": c.Input, "output_tokens": c.Output, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
	}
}

// ended returns the reason for the end of a response.
func ended(c *Call, byItself, byMaximum string) string {
	if c.Output == c.MaxOutput {
		return byMaximum
	}
	return byItself
}
