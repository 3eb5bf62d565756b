package cli

import "fmt"

// check is one finding.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Text   string `json:"text"`
	Next   string `json:"next,omitempty"` // what to do
}

func ok(name, format string, args ...any) check {
	return check{Name: name, Status: statusOK, Text: fmt.Sprintf(format, args...)}
}

func warn(name, next, format string, args ...any) check {
	return check{Name: name, Status: statusWarn, Next: next, Text: fmt.Sprintf(format, args...)}
}

func bad(name, next, format string, args ...any) check {
	return check{Name: name, Status: statusFail, Next: next, Text: fmt.Sprintf(format, args...)}
}

func unknown(name, format string, args ...any) check {
	return warn(name, "", "unknown, because "+format, args...)
}

// The statuses of a check. A finding that is unknown is a warning.
const (
	statusOK   = "ok"
	statusWarn = "warn"
	statusFail = "fail"
)
