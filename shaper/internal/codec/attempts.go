package codec

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
)

// Bounds of an attempt in Redis, in bytes. Even if JSON escapes every byte of them, a line has less than the 2 KiB of
// lua/lib/outcomes.lua.
const (
	maxDetail = 200
	maxReason = 40
)

// attempt is a line of lua/lib/outcomes.lua, which knows its first and its last field.
type attempt struct {
	At     int64  `json:"at"` // microseconds, by the clock of Redis
	Number int    `json:"number"`
	Took   int64  `json:"took,omitempty"` // microseconds
	Status int    `json:"status,omitempty"`
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	Result string `json:"result"`
}

// cut returns at most n bytes of a text, in whole characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// ShortAttempt is an attempt with no more text than Redis keeps.
func ShortAttempt(a shaper.JobAttempt) shaper.JobAttempt {
	a.Reason, a.Detail = cut(a.Reason, maxReason), cut(a.Detail, maxDetail)
	return a
}

// AttemptLine is an attempt as settle.lua wants it.
func AttemptLine(a shaper.JobAttempt) string {
	a = ShortAttempt(a)
	text, err := json.Marshal(attempt{
		At: a.At.UnixMicro(), Number: a.Number, Took: a.Took.Microseconds(), Status: a.Status,
		Reason: a.Reason, Detail: a.Detail, Result: a.Result.String(),
	})
	if err != nil {
		return "" // strings and numbers always marshal
	}
	return string(text)
}

// Attempts are those that Redis keeps of a job, the oldest first. A line that cannot be parsed is left out.
func Attempts(text string) []shaper.JobAttempt {
	_, lines, _ := strings.Cut(text, "\n")
	var attempts []shaper.JobAttempt
	for line := range strings.Lines(lines) {
		var a attempt
		if json.Unmarshal([]byte(line), &a) != nil {
			continue
		}
		if one, ok := a.open(); ok {
			attempts = append(attempts, one)
		}
	}
	return attempts
}

// open is the attempt that a line is of. ok is false of a result that is none.
func (a *attempt) open() (one shaper.JobAttempt, ok bool) {
	result := slices.IndexFunc(shaper.Results(), func(r shaper.Result) bool { return r.String() == a.Result })
	if result < 0 {
		return one, false
	}
	return shaper.JobAttempt{
		At: time.UnixMicro(a.At), Number: a.Number, Took: time.Duration(a.Took) * time.Microsecond, Status: a.Status,
		Reason: a.Reason, Detail: a.Detail, Result: shaper.Results()[result],
	}, true
}
