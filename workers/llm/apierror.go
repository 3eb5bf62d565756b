package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/tundish-io/tundish/internal/jsonscan"
	"github.com/tundish-io/tundish/workers"
)

// statusOverloaded is the status of a provider that is overloaded. The request itself is fine.
const statusOverloaded = 529

// apiError is an error of the APIs, in words. Members that are no text or number are ignored.
type apiError struct {
	kind, code, status string
	detail             string // the error_code of its details
}

// The members of an error, of its details, and of a response that is itself an error.
var (
	errorNames  = namesOf([]string{"type", "code", "status", "details"}) //nolint:gochecknoglobals // a constant
	detailNames = namesOf([]string{"error_code"})                        //nolint:gochecknoglobals // a constant
	faultName   = namesOf([]string{"error"})                             //nolint:gochecknoglobals // a constant
)

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

// word returns a member as text, a number as it is spelled; "" for anything else.
func word(member json.RawMessage) string {
	if at := jsonscan.New(member); at.Kind() == '0' {
		return string(member[:min(len(member), maxWord)])
	}
	return textOf(member)
}

// named returns the status that an error names: by a number, otherwise by a word, otherwise 500.
func (e *apiError) named() int {
	if e == nil {
		return http.StatusInternalServerError
	}
	words := []string{e.code, e.status, e.kind}
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

// said returns the name of an error, for people.
func (e *apiError) said() string {
	if e == nil {
		return "error"
	}
	return workers.Snippet([]byte(cmp.Or(e.kind, e.code, e.status, "error")))
}

// errorIn reads the error in a response, alone or as the first of a list; nil if it has none.
func errorIn(body []byte) *apiError {
	text := bytes.TrimSpace(body)
	jsonscan.Elements(text, func(first []byte) bool {
		text = first
		return false
	})
	answer, _ := members(text, faultName)
	return readError(answer["error"])
}

// isError reports whether the value of a member is an error. A text, and true, is an error without a name.
func isError(value json.RawMessage) bool {
	return isGiven(value) && string(value) != "false" && string(value) != `""`
}

// readError reads the value of a member that is an error, and returns nil if it is none.
func readError(value json.RawMessage) *apiError {
	if !isError(value) {
		return nil
	}
	e, _ := members(value, errorNames)
	details, _ := members(e["details"], detailNames) // a list, with Google
	return &apiError{kind: word(e["type"]), code: word(e["code"]), status: word(e["status"]), detail: word(details["error_code"])}
}
