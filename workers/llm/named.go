package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// apiError is an error as the APIs have it. Members that are no text or number say nothing.
type apiError struct {
	Type    json.RawMessage `json:"type"`
	Code    json.RawMessage `json:"code"`
	Status  json.RawMessage `json:"status"`
	Details json.RawMessage `json:"details"`
}

// statusesOf are the statuses that providers send with these types and codes of errors.
var statusesOf = map[string]int{ //nolint:gochecknoglobals // a constant
	"invalid_request_error": 400, "invalid_prompt": 400, "context_length_exceeded": 400, "content_filter": 400, "INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400,
	"authentication_error": 401, "invalid_api_key": 401, "UNAUTHENTICATED": 401,
	"billing_error": 402, "permission_error": 403, "PERMISSION_DENIED": 403,
	"not_found_error": 404, "model_not_found": 404, "NOT_FOUND": 404, "request_too_large": 413,
	"rate_limit_error": 429, "rate_limit_exceeded": 429, "too_many_requests": 429, "insufficient_quota": 429, "RESOURCE_EXHAUSTED": 429,
	"UNAVAILABLE": 503, "service_unavailable": 503, "engine_overloaded": 503, "timeout_error": 504, "DEADLINE_EXCEEDED": 504,
	"overloaded_error": statusOverloaded, "overloaded": statusOverloaded,
}

// word is a member as a text, a number as it is spelled; "" of anything else.
func word(member json.RawMessage) (text string) {
	var number json.Number
	if json.Unmarshal(member, &text) == nil {
		return text
	}
	if json.Unmarshal(member, &number) == nil {
		return number.String()
	}
	return ""
}

// named is the status that an error names: by a number, else by a word, else 500.
func (e *apiError) named() int {
	if e == nil {
		return http.StatusInternalServerError
	}
	words := []string{word(e.Code), word(e.Status), word(e.Type)}
	for _, said := range words {
		if status, err := strconv.Atoi(said); err == nil && status >= 400 && status <= 599 {
			return status
		}
	}
	for _, said := range words {
		if status := statusesOf[said]; status != 0 {
			return status
		}
	}
	return http.StatusInternalServerError
}

// said is what an error is called, for people.
func (e *apiError) said() string {
	if e == nil {
		return "error"
	}
	for _, said := range []string{word(e.Type), word(e.Code), word(e.Status)} {
		if said != "" {
			return workers.Snippet([]byte(said))
		}
	}
	return "error"
}

// errorIn reads the error in an answer, alone or as the first of a list; nil if it has none.
func errorIn(body []byte) *apiError {
	text := bytes.TrimSpace(body)
	if len(text) > 0 && text[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(text, &list) != nil || len(list) == 0 {
			return nil
		}
		text = list[0]
	}
	var answer struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return nil
	}
	return readError(answer.Error)
}

// readError reads the value of a member that is an error. A text, and true, is an error without a name.
func readError(value json.RawMessage) *apiError {
	e := &apiError{}
	if !isGiven(value) || string(value) == "false" || string(value) == `""` {
		return nil
	}
	_ = json.Unmarshal(value, e)
	return e
}

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
