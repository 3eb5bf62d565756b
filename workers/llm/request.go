package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tundish-io/tundish/shaper"
)

// request is what the worker knows of the body of a job.
type request struct {
	model   string
	text    int64 // bytes that become input tokens
	files   int64 // images and others, which are not in text
	choices int64 // answers that are asked for, 1 or more
	maximum int64 // of the output tokens of all choices together; unbounded: the request names none
	streams bool
}

const unbounded = -1

// form is what the request of an API looks like.
type form struct {
	wanted   string   // for errors
	required []string // members: one of them must be there
	text     []string // members whose content becomes input tokens
	maxima   []string // members that bound the output tokens of a choice
	choices  []string // members that say how many choices are made
}

var forms = map[API]form{
	OpenAI: {
		wanted:   `a JSON object as OpenAI's API takes it, such as {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}]}: with "model", and with "messages", "input" or "prompt"`,
		required: []string{"messages", "input", "prompt"},
		text:     []string{"messages", "input", "prompt", "suffix", "instructions", "tools", "functions", "response_format", "text"},
		maxima:   []string{"max_tokens", "max_completion_tokens", "max_output_tokens"},
		choices:  []string{"n", "best_of"},
	},
	Anthropic: {
		wanted:   `a JSON object as Anthropic's API takes it, such as {"model": "claude-haiku-4-5", "max_tokens": 500, "messages": [{"role": "user", "content": "Hello"}]}: with "model" and "messages"`,
		required: []string{"messages"},
		text:     []string{"messages", "system", "tools", "output_config"},
		maxima:   []string{"max_tokens"},
	},
}

// parse reads the body of a request. It returns what it could read beside the faults; nil if it is no object.
func parse(api API, payload []byte) (*request, error) {
	form := forms[api]
	object, twice := members(payload)
	if object == nil {
		return nil, &shaper.FieldError{Field: "payload", Reason: "want " + form.wanted}
	}
	var errs []error
	fail := func(field, reason string) {
		errs = append(errs, &shaper.FieldError{Field: field, Reason: reason})
	}
	if twice != "" {
		fail("payload."+twice, "is there twice: servers differ in which one they read")
	}
	r := &request{maximum: unbounded, choices: 1}
	if json.Unmarshal(object["model"], &r.model) != nil || r.model == "" || len(r.model) > maxModelBytes {
		r.model = ""
		fail("payload.model", fmt.Sprintf("want the name of a model, of at most %d bytes", maxModelBytes))
	}
	if !slices.ContainsFunc(form.required, func(name string) bool { return isGiven(object[name]) }) {
		fail("payload", "want "+form.wanted)
	}
	r.streams = isGiven(object["stream"]) && string(object["stream"]) != "false"
	number := func(name string, least int64) (n int64, named bool) {
		if !isGiven(object[name]) {
			return 0, false
		}
		n, ok := amount(object[name])
		if !ok || n < least {
			fail("payload."+name, fmt.Sprintf("want a whole number of at least %d", least))
			return 0, false
		}
		return n, true
	}
	for _, name := range form.choices {
		n, _ := number(name, 1)
		r.choices = max(r.choices, n)
	}
	for _, name := range form.maxima {
		if n, named := number(name, 0); named {
			r.maximum = max(r.maximum, atMost(n*r.choices))
		}
	}
	for _, name := range form.text {
		r.count(object[name])
	}
	return r, errors.Join(errs...)
}

// members returns the members of a JSON object, nil if the text is none, and the name of one that is there twice, "" if none is.
func members(text []byte) (object map[string]json.RawMessage, twice string) {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') || !json.Valid(text) {
		return nil, ""
	}
	object = map[string]json.RawMessage{}
	for d.More() {
		name, _ := d.Token() // the text is valid, so that there are no errors
		var value json.RawMessage
		_ = d.Decode(&value)
		key, _ := name.(string)
		if _, known := object[key]; known {
			twice = key
		}
		object[key] = value
	}
	return object, twice
}

// isGiven reports whether a member is there and not null, which says as little to both APIs.
func isGiven(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// amount reads a whole number. One that is too large for a budget is as large as any.
func amount(value json.RawMessage) (int64, bool) {
	n, err := strconv.ParseFloat(string(value), 64)
	if errors.Is(err, strconv.ErrSyntax) || n != math.Trunc(n) || n < 0 {
		return 0, false
	}
	return int64(min(n, shaper.MaxBudgetAmount)), true
}

// atMost is n within the bounds of a budget.
func atMost(n int64) int64 { return min(max(n, 0), shaper.MaxBudgetAmount) }
