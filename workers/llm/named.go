package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/internal/jsonscan"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// faultIn returns the fault of a response whose status is a success: the status and the message in its body. The status is 0 for a real success. The
// response may have been cut.
func faultIn(header http.Header, body []byte) (status int, said string) {
	text := bytes.TrimSpace(body)
	switch {
	case len(text) == 0:
		return http.StatusInternalServerError, "no body"
	case isHTML(header, text):
		return http.StatusInternalServerError, "a page of HTML"
	case text[0] != '{' && text[0] != '[':
		return 0, "" // audio, or the text of some
	}
	if text[0] == '[' {
		if e := errorIn(text); e != nil {
			return e.named(), e.said()
		}
		return 0, ""
	}
	answer, _ := members(text, faultNames) // a response that was cut has none
	e := readError(answer["error"])
	switch {
	case word(answer["status"]) == "failed":
		return e.named(), "status failed, " + e.said()
	case e != nil && !slices.ContainsFunc(outputNames, func(name string) bool { return hasAny(answer[name]) }):
		return e.named(), e.said()
	case word(answer["type"]) == "error":
		return e.named(), e.said()
	}
	return faultOfChoices(answer["choices"])
}

// outputNames are the members of a response that hold a model's output; candidates are Google's. faultNames are all members that show whether it is a
// fault.
var (
	outputNames = []string{"choices", "output", "content", "data", "candidates"}
	faultNames  = namesOf(outputNames, []string{"type", "status", "error"}) //nolint:gochecknoglobals // a constant
)

// faultOfChoices returns the fault of a response whose choices are all errors. It names the last one.
func faultOfChoices(choices json.RawMessage) (status int, said string) {
	var last json.RawMessage
	areErrors := jsonscan.Elements(choices, func(choice []byte) bool {
		last = errorOfChoice(choice)
		return isError(last)
	})
	if !areErrors || last == nil {
		return 0, ""
	}
	e := readError(last)
	return e.named(), e.said()
}

// errorOfChoice is the member of a choice that is its error; nil if it has none.
func errorOfChoice(choice []byte) (value json.RawMessage) {
	jsonscan.Members(choice, func(name, of []byte) {
		if jsonscan.Is(name, "error") {
			value = of
		}
	})
	return value
}

// hasAny reports whether a member is there, and not empty: null, or without a part or a letter.
func hasAny(member json.RawMessage) bool {
	at := jsonscan.New(member)
	switch at.Kind() {
	case 0, 'n':
		return false
	case '"':
		return len(bytes.TrimSpace(member[1:len(member)-1])) > 0
	case '{', '[':
		return !at.Parts(func([]byte) bool { return false })
	}
	return true
}

func isHTML(header http.Header, text []byte) bool {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if kind = strings.ToLower(strings.TrimSpace(kind)); kind == "text/html" || kind == "application/xhtml+xml" {
		return true
	}
	start := strings.ToLower(string(text[:min(len(text), len("<!doctype html"))]))
	return strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html")
}

// judgeAs returns the outcome of a response that has a success status and names another one: as if it had that status. It has used nothing.
func judgeAs(policy workers.Policy, r *workers.Response, named int, said string) shaper.Outcome {
	inner := *r
	inner.Status, policy.Rules = named, nil
	outcome := refineOutcome(policy, policy.Judge(&inner), r.Body)
	if outcome.Reason != workers.ReasonBilling {
		outcome.Detail = fmt.Sprintf("the provider answered %d, and in it %s, which counts as %d", r.Status, said, named)
	}
	outcome.Status, outcome.Gone, outcome.Body, outcome.Used = r.Status, false, workers.Snippet(r.Body), shaper.Units{}
	return outcome
}

// judged returns the outcome of a response with a success status; ok is false for a real success. A rule of the bucket that fits decides.
func judged(policy workers.Policy, r *workers.Response) (outcome shaper.Outcome, ok bool) {
	if nth, _ := policy.Rules.Fitting(r); nth > 0 {
		return outcome, false
	}
	named, said := faultIn(r.Header, r.Body)
	if named == 0 {
		return outcome, false
	}
	return judgeAs(policy, r, named, said), true
}

// Judge returns the outcome of a response to a request to a model, without its usage: see [workers.Policy.Judge].
func Judge(policy workers.Policy, r *workers.Response) shaper.Outcome {
	outcome := policy.Judge(r)
	if outcome.Result != shaper.ResultDone {
		return refineOutcome(policy, outcome, r.Body)
	}
	if fault, ok := judged(policy, r); ok {
		return fault
	}
	return outcome
}
