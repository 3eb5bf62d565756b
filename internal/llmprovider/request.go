package llmprovider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxRequest is how many bytes of a request are read.
const maxRequest = 8 << 20

// request is a provider's view of a request.
type request struct {
	kind      kind
	model     string
	input     int64 // tokens
	maxOutput int64 // tokens, 0: the request names no maximum
	streams   bool
	asksUsage bool // at the end of a stream

	outputs    int64 // of a completion: one for each prompt
	refers     bool  // to input that is not in the body
	background bool
	options    bool // it has stream_options
}

// bytesPerToken is the rule of thumb of the providers for English text.
const bytesPerToken = 4

// body is the body of a request.
type body struct {
	Model         string    `json:"model"`
	Messages      any       `json:"messages"`
	System        any       `json:"system"`
	Prompt        any       `json:"prompt"`
	Input         any       `json:"input"`
	MaxTokens     int64     `json:"max_tokens"`
	MaxCompletion int64     `json:"max_completion_tokens"`
	MaxOutput     int64     `json:"max_output_tokens"`
	Choices       int64     `json:"n"`
	Background    bool      `json:"background"`
	Previous      *string   `json:"previous_response_id"`
	Conversation  any       `json:"conversation"`
	Tools         []anyTool `json:"tools"`
	Stream        bool      `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type anyTool struct {
	Type string `json:"type"`
}

// refers reports whether the provider adds input that is not in the body.
func (b *body) refers() bool {
	_, isStored := b.Prompt.(map[string]any)
	return isStored || b.Previous != nil || b.Conversation != nil ||
		slices.ContainsFunc(b.Tools, func(t anyTool) bool { return strings.Contains(t.Type, "search") })
}

// read reads a request. deployment: the model that its path names, "" none.
func read(from io.Reader, kind kind, deployment string) (request, error) {
	var r body
	if err := json.NewDecoder(io.LimitReader(from, maxRequest)).Decode(&r); err != nil {
		return request{}, fmt.Errorf("we could not parse the JSON body of your request: %w", err)
	}
	r.Model = cmp.Or(deployment, r.Model)
	switch {
	case r.Model == "" && !r.refers():
		return request{}, errors.New("you must provide a model parameter")
	case (kind == chat || kind == messages) && r.Messages == nil:
		return request{}, errors.New("missing required parameter: 'messages'")
	case (kind == responses && !r.refers() || kind == embeddings) && r.Input == nil:
		return request{}, errors.New("missing required parameter: 'input'")
	}
	outputs := max(r.Choices, 1)
	if list, ok := r.Prompt.([]any); ok && kind == completions {
		outputs *= int64(len(list))
	}
	text := textBytes(r.Messages) + textBytes(r.System) + textBytes(r.Input) + textBytes(r.Prompt)
	return request{
		kind: kind, model: r.Model, input: (text + bytesPerToken - 1) / bytesPerToken, maxOutput: max(r.MaxTokens, r.MaxCompletion, r.MaxOutput) * outputs,
		streams: r.Stream, asksUsage: r.StreamOptions != nil && r.StreamOptions.IncludeUsage, options: r.StreamOptions != nil,
		outputs: outputs, refers: r.refers(), background: r.Background,
	}, nil
}

// textBytes are the bytes of text in the content of messages: a string, or a list of parts.
func textBytes(content any) (n int64) {
	switch content := content.(type) {
	case string:
		return int64(len(content))
	case []any:
		for _, part := range content {
			n += textBytes(part)
		}
	case map[string]any:
		return textBytes(content["content"]) + textBytes(content["text"])
	}
	return n
}
