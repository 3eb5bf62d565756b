package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/workers/llm"
)

// doorFault is a fault of this server in the form of a provider's error. The clients of the providers show the message, and find the code.
type doorFault struct {
	Type  string         `json:"type,omitempty"` // of Anthropic
	Error doorFaultError `json:"error"`
}

type doorFaultError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    code   `json:"code"`
}

// faultType tells the faults of this server from those of a provider.
const faultType = "tundish"

// writeAs writes a fault in the form of an API. The providers' clients try again after most errors. Once the API was called they are told not to:
// that would cost as much again.
func (f *fault) writeAs(api llm.API, wasSent bool, w http.ResponseWriter) {
	answer := doorFault{Error: doorFaultError{Message: f.Detail, Type: faultType, Code: f.Code}}
	if len(f.Errors) > 1 { // there is no other place for them
		var all []string
		for _, one := range f.Errors {
			all = append(all, one.Field+": "+one.Reason)
		}
		answer.Error.Message = strings.Join(all, "; ")
	}
	if api == llm.Anthropic {
		answer.Type = "error"
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(f.RetryAfter, 10))
	}
	if wasSent {
		w.Header().Set("X-Should-Retry", "false")
	}
	writeJSON(w, f.Status, &answer)
}
