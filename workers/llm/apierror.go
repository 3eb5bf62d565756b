package llm

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/tundish-io/tundish/workers"
)

// statusOverloaded is what a provider answers that is overloaded, and finds no fault with the request.
const statusOverloaded = 529

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
