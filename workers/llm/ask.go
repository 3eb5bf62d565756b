package llm

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// Ask is a request that a client makes to the API through Tundish, and whose answer passes to the client as it comes: see [Worker.Open].
type Ask struct {
	Units shaper.Units // that it is expected to use: none where it names no model
	Body  []byte       // as the API is to get it

	request *request
	hides   bool // the chunk with the usage: only we have asked for it
}

// ModelOf is the model that the body of a request names, "" none.
func ModelOf(body []byte) string {
	object, _ := members(body)
	var model string
	_ = json.Unmarshal(object["model"], &model) // what is no text names none
	return model
}

// Ask reads a request to a path of the API. The API decides what is wrong with it: what Tundish cannot read reserves nothing. A chat that streams
// is made to tell its usage at the end, which OpenAI does on request only.
func (w *Worker) Ask(path string, body []byte) *Ask {
	r, err := parse(w.config.API, body)
	if err != nil || r == nil {
		return &Ask{Units: shaper.Units{shaper.UnitInput: 0, shaper.UnitOutput: 0}, Body: body, request: &request{maximum: unbounded, choices: 1}}
	}
	a := &Ask{Units: w.config.estimate(r, w.learned), Body: body, request: r}
	path, _, _ = strings.Cut(path, "?")
	if r.streams && w.config.API == OpenAI && strings.HasSuffix(path, "/completions") {
		a.Body, a.hides = askForUsage(body)
	}
	return a
}

// askForUsage returns the body of a chat that asks for its usage, and whether it did not do so itself.
func askForUsage(body []byte) (asking []byte, isOurs bool) {
	object, _ := members(body)
	options := object["stream_options"]
	if !isGiven(options) {
		options = json.RawMessage("{}")
	}
	inner, _ := members(options)
	if inner == nil || string(inner["include_usage"]) == "true" {
		return body, false
	}
	return withMember(body, "stream_options", withMember(options, "include_usage", json.RawMessage("true"))), true
}

// withMember returns a JSON object with a member of a value. All else stays as it is spelled.
func withMember(object []byte, name string, value json.RawMessage) []byte {
	d := json.NewDecoder(bytes.NewReader(object))
	_, _ = d.Token() // the text is a valid object, so that there are no errors
	open := d.InputOffset()
	for d.More() {
		key, _ := d.Token()
		var old json.RawMessage
		_ = d.Decode(&old)
		if end := d.InputOffset(); key == name {
			return bytes.Join([][]byte{object[:end-int64(len(old))], value, object[end:]}, nil)
		}
	}
	quoted, _ := json.Marshal(name) // a text always marshals
	member := bytes.Join([][]byte{quoted, []byte(":"), value}, nil)
	if len(bytes.TrimLeft(object[open:], " \t\r\n")) > 1 { // other members follow
		member = append(member, ',')
	}
	return bytes.Join([][]byte{object[:open], member, object[open:]}, nil)
}
