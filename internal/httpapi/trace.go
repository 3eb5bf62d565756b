package httpapi

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// Bounds of Trace Context. A version after 00 may be longer than that.
const (
	maxTraceParent  = 256
	maxTraceState   = 512
	maxTraceMembers = 32
)

var (
	traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?$`)
	traceMember = regexp.MustCompile(`^[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]$`)
)

// traceContext is the Trace Context of a request that enqueues. It travels with the jobs to their deliveries, so a trace spans from the producer to the
// receiver.
type traceContext struct{ parent, state string } // each "" if there is none

// traceContextOf reads the Trace Context of a request. An invalid header is ignored, as the standard requires: a tracer's fault must cost no job.
func traceContextOf(h http.Header) traceContext {
	parents := h[shaper.HeaderTraceParent]
	if len(parents) != 1 || !validTraceParent(parents[0]) {
		return traceContext{}
	}
	t := traceContext{parent: parents[0]}
	if state := strings.Join(h[shaper.HeaderTraceState], ","); validTraceState(state) {
		t.state = state
	}
	return t
}

func validTraceParent(text string) bool {
	if len(text) > maxTraceParent || !traceParent.MatchString(text) {
		return false
	}
	version, trace, parent := text[:2], text[3:35], text[36:52]
	return version != "ff" && (version != "00" || len(text) == 55) && strings.Trim(trace, "0") != "" && strings.Trim(parent, "0") != ""
}

func validTraceState(text string) bool {
	if text == "" || len(text) > maxTraceState {
		return false
	}
	seen := map[string]bool{}
	members := strings.Split(text, ",")
	for _, member := range members {
		if member = strings.Trim(member, " \t"); member == "" {
			continue // the standard allows it
		}
		key, _, _ := strings.Cut(member, "=")
		if seen[key] || !traceMember.MatchString(member) {
			return false
		}
		seen[key] = true
	}
	return len(members) <= maxTraceMembers
}

// addTo adds the Trace Context to the headers of a valid job, unless the job names one of its own, or has no room for more headers.
func (t traceContext) addTo(job *shaper.Job) {
	if t.parent == "" {
		return
	}
	for name := range job.Headers {
		if shaper.IsTraceHeader(name) {
			return
		}
	}
	job.Headers = shaper.WithTraceContext(job.Headers, t.parent, t.state)
}
