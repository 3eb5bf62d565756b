// Package doctor examines a Redis: is it fit to keep jobs?
package doctor

import "fmt"

// Check is one finding.
type Check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Text   string `json:"text"`
	Next   string `json:"next,omitempty"` // what to do
}

// OK is a finding that needs nothing to be done.
func OK(name, format string, args ...any) Check {
	return Check{Name: name, Status: StatusOK, Text: fmt.Sprintf(format, args...)}
}

// Warn returns a finding that may lose jobs or time; next is what to do.
func Warn(name, next, format string, args ...any) Check {
	return Check{Name: name, Status: StatusWarn, Next: next, Text: fmt.Sprintf(format, args...)}
}

// Bad returns a finding that loses jobs, or stops all work.
func Bad(name, next, format string, args ...any) Check {
	return Check{Name: name, Status: StatusFail, Next: next, Text: fmt.Sprintf(format, args...)}
}

func unknown(name, format string, args ...any) Check {
	return Warn(name, "", "unknown, because "+format, args...)
}

// The statuses of a check. A finding that is unknown is a warning.
const (
	StatusOK   = "ok"
	StatusWarn = "warn"
	StatusFail = "fail"
)
