package llm

import (
	"cmp"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Ask is a client's request to the API through Tundish. Its response is streamed to the client: see [Worker.Open].
type Ask struct {
	Units shaper.Units // the expected usage: none if no model is asked
	Body  []byte       // as the API is to get it

	// Asked is the model of the client's request, if another one replaces it; otherwise "".
	Asked string

	// Memory, if set, reserves n bytes of memory to parse the response, and returns false if there is none. The response then passes on unparsed and is
	// charged what was reserved. The caller that sets Memory releases it after the call is closed.
	Memory func(bytes int) bool

	request *request
	came    []byte // the body as the client sent it
	hides   bool   // the chunk with the usage: only Tundish has requested it
}

// Ask reads a request to a path of the API. The API validates requests: where Tundish cannot parse one, it reserves the expected usage. A streaming chat
// is made to report its usage at the end, which OpenAI does on request only, unless the settings forbid it or the model has refused it.
func (w *Worker) Ask(path string, body []byte) *Ask { return w.AskOf(path, ReadBody(body)) }

// AskOf is Ask for a body that was read already.
func (w *Worker) AskOf(path string, body *Body) *Ask {
	r := w.requestOf(path, body)
	a := &Ask{Units: w.config.estimate(r, w.learned), Body: body.text, came: body.text, request: r}
	path, _, _ = strings.Cut(path, "?")
	if r.streams && w.config.API == OpenAI && w.config.IncludeUsage && strings.HasSuffix(path, "/completions") && !w.learned.refusesUsage(r.subject(), time.Now()) {
		a.Body, a.hides = body.askForUsage()
	}
	return a
}

// requestOf reads a request, as far as that is possible.
func (w *Worker) requestOf(address string, body *Body) *request {
	path := w.config.endpoint(address)
	r, _ := parse(w.config.API, path, body) // the API reports the faults
	if r == nil {
		r = &request{maximum: unbounded, choices: 1, model: cmp.Or(path.model, path.base), asks: asksUnknown}
	}
	switch {
	case len(body.text) == 0 || path.asksNoModel():
		r.asks = asksNothing
	case r.asks == asksUnknown:
		r.input = max(r.input, inputReferences) // their content is unknown
		if path.model != "" {
			r.asks = asksModel
		}
	}
	return r
}

// withoutUsage returns the ask as the client sent it.
func (a *Ask) withoutUsage() *Ask {
	plain := *a
	plain.Body, plain.hides = a.came, false
	return &plain
}
