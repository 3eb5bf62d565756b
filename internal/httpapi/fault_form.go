package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/workers/llm"
)

// write responds with a fault, in the form that the clients of the path expect.
func (f *fault) write(w http.ResponseWriter, r *http.Request) {
	noteForbidden(r, f)
	if api, isRoute := r.Context().Value(llmRouteKey{}).(llm.API); isRoute {
		f.writeAs(api, false, w)
		return
	}
	f.problem(r).write(w)
}

// routeFault is a fault of this server in the form of a provider's error. The clients of the providers show the message, and find the code.
type routeFault struct {
	Type  string          `json:"type,omitempty"` // of Anthropic
	Error routeFaultError `json:"error"`
}

type routeFaultError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    code   `json:"code"`
}

// llmRouteKey is the key, in the context of a request, of the API of its route.
type llmRouteKey struct{}

// inFormOfRoutes writes all faults of requests to a route in the form of its API, including faults before the route is reached, such as an unknown key.
func inFormOfRoutes(llmRoutes LLMRoutes, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path, isProxied := strings.CutPrefix(r.URL.EscapedPath(), proxyPath); isProxied {
			name, _, _ := strings.Cut(path, "/")
			if buckets := llmRoutes(name); len(buckets) > 0 {
				r = r.WithContext(context.WithValue(r.Context(), llmRouteKey{}, buckets[0].API.Worker.API()))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// faultType distinguishes the faults of this server from a provider's.
const faultType = "tundish"

// writeAs writes a fault in the form of an API. The providers' clients retry after most errors. Once the API was called, a header stops the retry, which
// would cost as much again.
func (f *fault) writeAs(api llm.API, wasSent bool, w http.ResponseWriter) {
	answer := routeFault{Error: routeFaultError{Message: f.Detail, Type: faultType, Code: f.Code}}
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
