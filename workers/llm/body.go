package llm

import (
	"bytes"
	"encoding/json"

	"github.com/tundish-io/tundish/internal/jsonscan"
)

// Body is the body of a request to the API, read once. It is not changed.
type Body struct {
	text   []byte
	object map[string]json.RawMessage // the members that were read; nil: it is no JSON object
	twice  string                     // a member that is there twice; "" none is
}

// ReadBody reads the body of a request. Its members are not copied, however many they are.
func ReadBody(text []byte) *Body {
	b := &Body{text: text}
	b.object, b.twice = members(text, requestNames)
	return b
}

// Model returns the model in the path of a request, otherwise in its body; "" none.
func (b *Body) Model(path string) string {
	if named := endpointOf(path).model; named != "" {
		return named
	}
	return textOf(b.object["model"])
}

// WithModel returns the path and the body of a request with another model where [Body.Model] finds it, all else unchanged. ok is false for a request
// that names no model, or names two in its body: an API may use either.
func (b *Body) WithModel(path, model string) (newPath string, body *Body, ok bool) {
	if e := endpointOf(path); e.model != "" {
		return e.withModel(path, model), b, true
	}
	if textOf(b.object["model"]) == "" || b.twice == "model" {
		return path, b, false
	}
	quoted, _ := json.Marshal(model) // a text always marshals
	return path, ReadBody(withMember(b.text, "model", quoted)), true
}

// usageOption is the member that requests the usage of a stream from OpenAI.
const usageOption = "stream_options"

// askForUsage returns the body of a chat that requests its usage, and whether it did not do so itself.
func (b *Body) askForUsage() (asking []byte, isOurs bool) {
	options := b.object[usageOption]
	if !isGiven(options) {
		return withMember(b.text, usageOption, json.RawMessage(`{"include_usage":true}`)), true
	}
	inner, _ := members(options, usageNames)
	if inner == nil || len(options) > maxOptions || b.twice != "" || string(inner["include_usage"]) == "true" {
		return b.text, false
	}
	return withMember(b.text, usageOption, withMember(options, "include_usage", json.RawMessage("true"))), true
}

// maxOptions bounds, in bytes, the stream options that Tundish adds to. The API's own options take about 50.
const maxOptions = 4 << 10

var usageNames = namesOf([]string{"include_usage"}) //nolint:gochecknoglobals // a constant

// withMember returns a JSON object with a member set to a value. All else is unchanged.
func withMember(object []byte, name string, value json.RawMessage) []byte {
	at := jsonscan.New(object) // the text is a valid object, so that there are no errors
	var old json.RawMessage
	isEmpty := true
	at.Parts(func(key []byte) bool {
		isEmpty = false
		if !jsonscan.Is(key, name) {
			return true
		}
		old = at.Value()
		return false
	})
	if end := at.Offset(); old != nil {
		return bytes.Join([][]byte{object[:end-len(old)], value, object[end:]}, nil)
	}
	open := bytes.IndexByte(object, '{') + 1
	quoted, _ := json.Marshal(name) // a text always marshals
	member := bytes.Join([][]byte{quoted, []byte(":"), value}, nil)
	if !isEmpty { // other members follow
		member = append(member, ',')
	}
	return bytes.Join([][]byte{object[:open], member, object[open:]}, nil)
}
