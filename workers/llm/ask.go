package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Ask is a request that a client makes to the API through Tundish, and whose answer passes to the client as it comes: see [Worker.Open].
type Ask struct {
	Units shaper.Units // that it is expected to use: none where it asks no model
	Body  []byte       // as the API is to get it

	request *request
	came    []byte // the body as the client sent it
	hides   bool   // the chunk with the usage: only we have asked for it
}

// ModelOf is the model that the path of a request names, else its body; "" none.
func ModelOf(path string, body []byte) string {
	if named := endpointOf(path).model; named != "" {
		return named
	}
	object, _ := members(body)
	var model string
	_ = json.Unmarshal(object["model"], &model) // what is no text names none
	return model
}

// usageOption is the member with which OpenAI is asked for the usage of a stream.
const usageOption = "stream_options"

// Ask reads a request to a path of the API. The API decides what is wrong with it: what Tundish cannot read reserves what is expected of such a
// request. A chat that streams is made to tell its usage at the end, which OpenAI does on request only, unless the settings forbid it or the model
// has refused it.
func (w *Worker) Ask(path string, body []byte) *Ask {
	r := w.requestOf(path, body)
	a := &Ask{Units: w.config.estimate(r, w.learned), Body: body, came: body, request: r}
	path, _, _ = strings.Cut(path, "?")
	if r.streams && w.config.API == OpenAI && w.config.IncludeUsage && strings.HasSuffix(path, "/completions") && !w.learned.refusesUsage(r.subject(), time.Now()) {
		a.Body, a.hides = askForUsage(body)
	}
	return a
}

// requestOf reads a request, as far as that is possible.
func (w *Worker) requestOf(address string, body []byte) *request {
	path := w.config.endpoint(address)
	r, _ := parse(w.config.API, path, body) // the API reports the faults
	if r == nil {
		r = &request{maximum: unbounded, choices: 1, model: cmp.Or(path.model, path.base), asks: asksUnknown}
	}
	switch {
	case len(body) == 0 || path.asksNoModel():
		r.asks = asksNothing
	case r.asks == asksUnknown:
		r.input = max(r.input, inputReferences) // of which nothing is seen
		if path.model != "" {
			r.asks = asksModel
		}
	}
	return r
}

// withoutUsage is the ask as the client sent it.
func (a *Ask) withoutUsage() *Ask {
	plain := *a
	plain.Body, plain.hides = a.came, false
	return &plain
}

// askForUsage returns the body of a chat that asks for its usage, and whether it did not do so itself.
func askForUsage(body []byte) (asking []byte, isOurs bool) {
	object, twice := members(body)
	options := object[usageOption]
	if !isGiven(options) {
		options = json.RawMessage("{}")
	}
	inner, _ := members(options)
	if inner == nil || twice != "" || string(inner["include_usage"]) == "true" {
		return body, false
	}
	return withMember(body, usageOption, withMember(options, "include_usage", json.RawMessage("true"))), true
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
