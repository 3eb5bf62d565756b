package llm

import (
	"path"
	"slices"

	"errors"
	"fmt"
	"net/http"

	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/jsonscan"
	"github.com/tundish-io/tundish/shaper"
	"math"
)

// Ask is a request that a client makes to the API through Tundish, and whose answer passes to the client as it comes: see [Worker.Open].
type Ask struct {
	Units shaper.Units // that it is expected to use: none where it asks no model
	Body  []byte       // as the API is to get it

	// Memory, if it is set, takes memory for what is read of the answer, in bytes, and returns false where there is none: the answer then passes on unread,
	// and is charged what was reserved. Who sets it gives the memory back once the call is closed.
	Memory func(bytes int) bool

	request *request
	came    []byte // the body as the client sent it
	hides   bool   // the chunk with the usage: only we have asked for it
}

// Body is the body of a request to the API, read once. It is not changed.
type Body struct {
	text   []byte
	object map[string]json.RawMessage // what is read of it; nil: it is no JSON object
	twice  string                     // a member that is there twice; "" none is
}

// ReadBody reads the body of a request. Its members are not copied, however many they are.
func ReadBody(text []byte) *Body {
	b := &Body{text: text}
	b.object, b.twice = members(text, requestNames)
	return b
}

// Model is the model that the path of a request names, else its body; "" none.
func (b *Body) Model(path string) string {
	if named := endpointOf(path).model; named != "" {
		return named
	}
	return textOf(b.object["model"])
}

// usageOption is the member with which OpenAI is asked for the usage of a stream.
const usageOption = "stream_options"

// Ask reads a request to a path of the API. The API decides what is wrong with it: what Tundish cannot read reserves what is expected of such a
// request. A chat that streams is made to tell its usage at the end, which OpenAI does on request only, unless the settings forbid it or the model
// has refused it.
func (w *Worker) Ask(path string, body []byte) *Ask { return w.AskOf(path, ReadBody(body)) }

// AskOf is Ask of a body that is read already.
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

// maxOptions bounds the options of a stream that are added to, in bytes. Those of the API are some 50.
const maxOptions = 4 << 10

var usageNames = namesOf([]string{"include_usage"}) //nolint:gochecknoglobals // a constant

// withMember returns a JSON object with a member of a value. All else stays as it is spelled.
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

// read takes in the request of a job, and reports every fault, joined, each a [*shaper.FieldError] that repeats nothing of the prompt.
func (c Config) read(method, address string, payload []byte) (*request, error) {
	var errs []error
	if method != "" && method != http.MethodPost {
		errs = append(errs, &shaper.FieldError{Field: "method", Reason: "want POST: jobs of this bucket are requests to a model"})
	}
	r, err := parse(c.API, c.endpoint(address), ReadBody(payload))
	errs = append(errs, err)
	if r != nil && r.streams {
		errs = append(errs, &shaper.FieldError{Field: "payload.stream", Reason: "queued jobs cannot stream: leave it out, or make it false"})
	}
	if r != nil && err == nil && r.model == "" && len(c.Models) > 0 {
		errs = append(errs, &shaper.FieldError{Field: "payload.model", Reason: fmt.Sprintf("is missing, and this bucket takes the models %s only", strings.Join(c.Models, ", "))})
	}
	if r != nil && r.model != "" && !c.allows(r.model) {
		errs = append(errs, &shaper.FieldError{
			Field:  "payload.model",
			Reason: fmt.Sprintf("%q: this bucket takes the models %s: name one of them, or add a pattern to %s.models", r.model, strings.Join(c.Models, ", "), table),
		})
	}
	return r, errors.Join(errs...)
}

// allows reports whether jobs may name the model.
func (c Config) allows(model string) bool {
	return len(c.Models) == 0 || slices.ContainsFunc(c.Models, func(pattern string) bool {
		matches, _ := path.Match(pattern, model) // Validate has seen the pattern
		return matches
	})
}

// How many tokens are expected where nothing else is known.
const (
	tokensPerByte = 0.3
	tokensPerFile = 1600
)

// Estimate returns what a request to a path of the API reserves, by its body.
//
// Input is 0.3 tokens for each byte of text, or what learned knows of the model, and 1,600 for each image. Input that is not in the body, such as
// a PDF, an earlier response or what a search finds, is c.ExpectedInput, or what learned knows of requests of that kind. Output is the maximum
// that the request names if c counts it. Else it is the expected output, at most that maximum. A request for several choices, or with several
// prompts, reserves that many times. learned may be nil.
//
// The error is what [Config.CheckJob] says of such a body.
func Estimate(c Config, path string, body []byte, learned *Learned) (shaper.Units, error) {
	r, err := c.read("", path, body)
	if err != nil {
		return nil, err
	}
	return c.estimate(r, learned), nil
}

func (c Config) estimate(r *request, learned *Learned) shaper.Units {
	if r.asks == asksNothing {
		return shaper.Units{shaper.UnitInput: 0, shaper.UnitOutput: 0}
	}
	e := learned.usual(r.subject(), r.input, c.unknown(r.input))
	output := wholeTokens(e.output * float64(r.choices))
	switch {
	case r.vectors:
		output = 0
	case r.maximum == unbounded:
	case c.CountMaxTokens:
		output = r.maximum
	default:
		output = min(output, r.maximum)
	}
	unseen := e.unseen * float64(max(r.unseen(), 1))
	input := wholeTokens(float64(r.text)*e.perByte+unseen) + r.files*tokensPerFile
	return shaper.Units{shaper.UnitInput: atMost(input), shaper.UnitOutput: output}
}

// unknown is what is expected of a kind of input where nothing is learned.
func (c Config) unknown(kind input) expectation {
	e := expectation{perByte: tokensPerByte, output: float64(c.ExpectedOutput)}
	if kind != inputText {
		e.unseen = float64(c.ExpectedInput)
	}
	return e
}

// wholeTokens is the next whole number, within the bounds of a budget.
func wholeTokens(n float64) int64 { return int64(math.Ceil(min(max(n, 0), shaper.MaxBudgetAmount))) }
