package shaper

import (
	"maps"
	"strings"
)

// Bounds of the headers of a job's request, which workers keep.
const (
	MaxHeaders     = 64
	MaxHeaderBytes = 16 << 10 // names and values together
)

// Headers of W3C Trace Context, as Go spells them.
const (
	HeaderTraceParent = "Traceparent"
	HeaderTraceState  = "Tracestate"
)

// IsTraceHeader reports whether a header is one of W3C Trace Context, in any case. These headers are no content of a job: a job that is sent again in
// another trace is the same job.
func IsTraceHeader(name string) bool {
	return strings.EqualFold(name, HeaderTraceParent) || strings.EqualFold(name, HeaderTraceState)
}

// WithTraceContext returns a copy of a job's headers with this Trace Context in place of any other. state may be "". The state is omitted if it
// exceeds the bounds. If the parent does not fit, WithTraceContext returns the headers unchanged.
func WithTraceContext(headers map[string][]string, parent, state string) map[string][]string {
	lines, size := 1, len(HeaderTraceParent)+len(parent)
	for name, values := range headers {
		if IsTraceHeader(name) {
			continue
		}
		lines += len(values)
		for _, value := range values {
			size += len(name) + len(value)
		}
	}
	if lines > MaxHeaders || size > MaxHeaderBytes {
		return headers
	}
	with := make(map[string][]string, len(headers)+2) //nolint:mnd // both of them
	maps.Copy(with, headers)
	maps.DeleteFunc(with, func(name string, _ []string) bool { return IsTraceHeader(name) })
	with[HeaderTraceParent] = []string{parent}
	if state != "" && lines < MaxHeaders && size+len(HeaderTraceState)+len(state) <= MaxHeaderBytes {
		with[HeaderTraceState] = []string{state}
	}
	return with
}
