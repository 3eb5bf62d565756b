package llmprovider

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxRequest is how much of a request is read.
const maxRequest = 8 << 20

// request is what a provider reads of a request.
type request struct {
	kind      kind
	model     string
	input     int64 // tokens
	maxOutput int64 // tokens, 0: the request names no maximum
	streams   bool
	asksUsage bool // at the end of a stream
}

// bytesPerToken is the rule of thumb of the providers for English text.
const bytesPerToken = 4

func read(body io.Reader, kind kind) (request, error) {
	var r struct {
		Model         string `json:"model"`
		Messages      any    `json:"messages"`
		System        any    `json:"system"`
		ResponseInput any    `json:"input"`
		MaxTokens     int64  `json:"max_tokens"`
		MaxCompletion int64  `json:"max_completion_tokens"`
		MaxOutput     int64  `json:"max_output_tokens"`
		Stream        bool   `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxRequest)).Decode(&r); err != nil {
		return request{}, fmt.Errorf("we could not parse the JSON body of your request: %w", err)
	}
	switch {
	case r.Model == "":
		return request{}, errors.New("you must provide a model parameter")
	case (kind == chat || kind == messages) && r.Messages == nil:
		return request{}, errors.New("missing required parameter: 'messages'")
	case (kind == responses || kind == embeddings) && r.ResponseInput == nil:
		return request{}, errors.New("missing required parameter: 'input'")
	}
	text := textBytes(r.Messages) + textBytes(r.System) + textBytes(r.ResponseInput)
	return request{
		kind: kind, model: r.Model, input: (text + bytesPerToken - 1) / bytesPerToken, maxOutput: max(r.MaxTokens, r.MaxCompletion, r.MaxOutput),
		streams: r.Stream, asksUsage: r.StreamOptions.IncludeUsage,
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
