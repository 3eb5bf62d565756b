package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/tundish-io/tundish/shaper"
)

// request is the worker's view of a request.
type request struct {
	content

	model   string // "" it names none
	sentBy  sender
	asks    asks
	input   input
	choices int64 // requested outputs, of all prompts together, 1 or more
	vectors bool  // no text is requested
	maximum int64 // of the output tokens of all choices together; unbounded: the request names none
	streams bool
}

// asks is what a request asks for.
type asks int

const (
	asksModel   asks = iota // a model is to work
	asksUnknown             // it cannot be read, or names no model
	asksNothing             // it has no body, or its path asks no model
)

const unbounded = -1

// form describes the request of an API.
type form struct {
	wanted   string   // for errors
	required []string // members: one of them must be there
	text     []string // members whose content becomes input tokens
	maxima   []string // members that bound the output tokens of a choice
	choices  []string // members with the number of choices
}

var forms = map[API]form{
	OpenAI: {
		wanted:   `a JSON object as OpenAI's API takes it, such as {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}]}: with "model", and with "messages", "input", "prompt", "conversation" or "previous_response_id"`,
		required: append([]string{"messages", "input", "prompt"}, references...),
		text: []string{
			"messages", "input", "prompt", "suffix", "instructions", "tools", "functions", "response_format", "text",
			"additional_instructions", "additional_messages", "thread", // runs of assistants
		},
		maxima:  []string{"max_tokens", "max_completion_tokens", "max_output_tokens"},
		choices: []string{"n", "best_of"},
	},
	Anthropic: {
		wanted:   `a JSON object as Anthropic's API takes it, such as {"model": "claude-haiku-4-5", "max_tokens": 500, "messages": [{"role": "user", "content": "Hello"}]}: with "model" and "messages"`,
		required: []string{"messages"},
		text:     []string{"messages", "system", "tools", "output_config"},
		maxima:   []string{"max_tokens"},
	},
}

// requestNames are all members of a request that are read.
var requestNames = func() names { //nolint:gochecknoglobals // a constant
	all := namesOf(references, searches, []string{"model", "stream", usageOption, "tools", "prompt", "input"})
	for _, form := range forms {
		maps.Copy(all, namesOf(form.required, form.text, form.maxima, form.choices))
	}
	return all
}()

// parse reads a request by its path and its body. With the faults it returns the part that it could read; nil if the body is no object.
func parse(api API, path endpoint, body *Body) (*request, error) {
	form := forms[api]
	object, twice := body.object, body.twice
	if object == nil {
		return nil, &shaper.FieldError{Field: "payload", Reason: "want " + form.wanted}
	}
	p := &parsing{object: object}
	if twice != "" {
		p.fail("payload."+twice, "is there twice: servers differ in which one they read")
	}
	r := &request{maximum: unbounded, choices: 1, model: path.model}
	if r.model == "" {
		r.model = p.model(path.base)
	}
	if !slices.ContainsFunc(form.required, func(name string) bool { return isGiven(object[name]) }) {
		r.asks = asksUnknown
		p.fail("payload", "want "+form.wanted)
	}
	r.streams = isGiven(object["stream"]) && string(object["stream"]) != "false"
	for _, name := range form.choices {
		n, _ := p.number(name, 1)
		r.choices = max(r.choices, n)
	}
	if slices.Contains(form.required, "prompt") {
		r.choices = atMost(r.choices * promptsIn(object["prompt"]))
	}
	for _, name := range form.maxima {
		if n, named := p.number(name, 0); named {
			r.maximum = max(r.maximum, atMost(n*r.choices))
		}
	}
	for _, name := range form.text {
		r.count(object[name])
	}
	r.vectors = path.isEmbedding() || api == OpenAI && isListOfTexts(object["input"])
	r.readInput(object)
	if path.asksNoModel() {
		r.asks = asksNothing
	}
	return r, errors.Join(p.errs...)
}

// parsing reads the members of a request.
type parsing struct {
	object map[string]json.RawMessage
	errs   []error
}

func (p *parsing) fail(field, reason string) {
	p.errs = append(p.errs, &shaper.FieldError{Field: field, Reason: reason})
}

// model returns the model that the body names, otherwise the model of the base URL. A stored prompt and an assistant have their own.
func (p *parsing) model(base string) (model string) {
	model = textOf(p.object["model"])
	isGiven := isGiven(p.object["model"]) && string(p.object["model"]) != `""`
	switch {
	case model != "" && len(model) <= maxModelBytes:
	case !isGiven && base != "":
		return base
	case !isGiven && p.hasModelElsewhere():
	default:
		p.fail("payload.model", fmt.Sprintf("want the name of a model, of at most %d bytes", maxModelBytes))
	}
	return short(model)
}

// hasModelElsewhere reports whether the provider knows the model: by a stored prompt, or by an assistant.
func (p *parsing) hasModelElsewhere() bool {
	return isObject(p.object["prompt"]) || isGiven(p.object["assistant_id"])
}

// number reads a whole number.
func (p *parsing) number(name string, least int64) (n int64, named bool) {
	value := p.object[name]
	if !isGiven(value) {
		return 0, false
	}
	n, ok := amount(value)
	if !ok || n < least {
		p.fail("payload."+name, fmt.Sprintf("want a whole number of at least %d", least))
		return 0, false
	}
	return n, true
}

// amount reads a whole number. One that is too large for a budget is as large as any.
func amount(value json.RawMessage) (int64, bool) {
	if len(value) > maxWord {
		return 0, false
	}
	n, err := strconv.ParseFloat(string(value), 64)
	if errors.Is(err, strconv.ErrSyntax) || n != math.Trunc(n) || n < 0 {
		return 0, false
	}
	return int64(min(n, shaper.MaxBudgetAmount)), true
}

// atMost returns n within the bounds of a budget.
func atMost(n int64) int64 { return min(max(n, 0), shaper.MaxBudgetAmount) }
