package llm

import (
	"bytes"
	"encoding/json"
	"slices"
)

// numberBytes is what a number counts for, in bytes of text: an embedding takes its input as tokens too, each a number.
const numberBytes = 4

// fileTypes are the types of the parts of a message that hold or name a file, in both APIs. A model does not read them as text.
var fileTypes = []string{
	"image_url", "input_audio", "file", "video_url", // chat completions
	"input_image", "input_file", "computer_screenshot", // responses
	"image", "document", "container_upload", // messages
}

// count adds the text and the files of a member. Text are the strings and the names of members, which stand for what a provider writes
// around each message.
func (r *request) count(raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // a float could be out of range
	var content any
	if d.Decode(&content) == nil {
		r.add(content)
	}
}

func (r *request) add(content any) {
	switch content := content.(type) {
	case string:
		r.text += int64(len(content))
	case json.Number:
		r.text += numberBytes
	case []any:
		for _, part := range content {
			r.add(part)
		}
	case map[string]any:
		if isFile(content) {
			r.files++
			return
		}
		for name, part := range content {
			r.text += int64(len(name))
			r.add(part)
		}
	}
}

// isFile reports whether a part of a message is a file. A document of Anthropic may be text.
func isFile(part map[string]any) bool {
	kind, _ := part["type"].(string)
	if !slices.Contains(fileTypes, kind) {
		return false
	}
	source, _ := part["source"].(map[string]any)
	return source["type"] != "text" && source["type"] != "content"
}
