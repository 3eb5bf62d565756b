package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// faultIn returns the fault of an answer that its status calls a success: the status that it names instead, and what it says. It is 0 of a real
// success. The answer may have been cut.
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
	var answer struct {
		Type     json.RawMessage   `json:"type"`
		Status   json.RawMessage   `json:"status"`
		Error    json.RawMessage   `json:"error"`
		Choices  []json.RawMessage `json:"choices"`
		Output   json.RawMessage   `json:"output"`
		Content  json.RawMessage   `json:"content"`
		Data     json.RawMessage   `json:"data"`
		OutputAs json.RawMessage   `json:"candidates"`
	}
	if text[0] == '[' {
		if e := errorIn(text); e != nil {
			return e.named(), e.said()
		}
		return 0, ""
	}
	_ = json.Unmarshal(text, &answer) // what it can read counts
	e := readError(answer.Error)
	switch {
	case word(answer.Status) == "failed":
		return e.named(), "status failed, " + e.said()
	case e != nil && len(answer.Choices) == 0 && !hasAny(answer.Output, answer.Content, answer.Data, answer.OutputAs):
		return e.named(), e.said()
	case word(answer.Type) == "error":
		return e.named(), e.said()
	}
	return faultOfChoices(answer.Choices)
}

// faultOfChoices is the fault of an answer of which every choice is an error.
func faultOfChoices(choices []json.RawMessage) (status int, said string) {
	for _, one := range choices {
		var choice struct {
			Error json.RawMessage `json:"error"`
		}
		_ = json.Unmarshal(one, &choice)
		e := readError(choice.Error)
		if e == nil {
			return 0, ""
		}
		status, said = e.named(), e.said()
	}
	return status, said
}

// hasAny reports whether one of the members is there, and not empty.
func hasAny(members ...json.RawMessage) bool {
	return slices.ContainsFunc(members, func(member json.RawMessage) bool {
		text := string(bytes.Join(bytes.Fields(member), nil))
		return text != "" && text != "null" && text != "[]" && text != "{}" && text != `""`
	})
}

func isHTML(header http.Header, text []byte) bool {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if kind = strings.ToLower(strings.TrimSpace(kind)); kind == "text/html" || kind == "application/xhtml+xml" {
		return true
	}
	start := strings.ToLower(string(text[:min(len(text), len("<!doctype html"))]))
	return strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html")
}

// judgeAs is the outcome of an answer whose status is a success and that names another one: as if it had that status. It has used nothing.
func judgeAs(policy workers.Policy, r *workers.Response, named int, said string) shaper.Outcome {
	inner := *r
	inner.Status, policy.Rules = named, nil
	outcome := judge(policy, policy.Judge(&inner), r.Body)
	if outcome.Reason != workers.ReasonBilling {
		outcome.Detail = fmt.Sprintf("the provider answered %d, and in it %s, which counts as %d", r.Status, said, named)
	}
	outcome.Status, outcome.Gone, outcome.Body, outcome.Used = r.Status, false, workers.Snippet(r.Body), shaper.Units{}
	return outcome
}

// judged is the outcome of an answer that its status calls a success; ok is false of a real one. A rule of the bucket that fits has the last word.
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

// Judge is the outcome of a response to a request to a model, apart from what that has used: see [workers.Policy.Judge].
func Judge(policy workers.Policy, r *workers.Response) shaper.Outcome {
	outcome := policy.Judge(r)
	if outcome.Result != shaper.ResultDone {
		return judge(policy, outcome, r.Body)
	}
	if fault, ok := judged(policy, r); ok {
		return fault
	}
	return outcome
}
