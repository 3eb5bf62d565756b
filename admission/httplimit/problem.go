package httplimit

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// problem is an error as the client sees it (RFC 9457).
type problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Code             string   `json:"code"` // a closed list, for programs
	Detail           string   `json:"detail,omitempty"`
	Instance         string   `json:"instance"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	RetryAfter       int64    `json:"retry_after,omitempty"` // seconds
}

const problemBase = "https://tundish.io/problems/"

func (p problem) write(w http.ResponseWriter, r *http.Request) {
	if p.Type == "" {
		p.Type = problemBase + p.Code
	}
	p.Instance = r.URL.EscapedPath()
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(p) // fails only when the client is gone
}
