package workers

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// JudgedBytes is how much of the body of a response a [Policy] looks at. What follows says nothing.
const JudgedBytes = 64 << 10

// Response is the response to an attempt, as far as a [Policy] judges it. The body is foreign: nothing is decoded but the values that
// rules point at.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // its beginning
	Broke  bool   // the connection broke before the end of the body
	At     time.Time

	// Number is that of the attempt: see [shaper.Attempt]. 0 counts as 1.
	Number int

	// InDoubt says that an earlier attempt of the job, with the same idempotency key, may have taken effect.
	InDoubt bool

	// OfBatch says that the request carried the jobs of a batch: see [Policy.Outcomes].
	OfBatch bool
}

// clock returns the time of the response by the clock of its sender: the header Date, and the time that it spent in caches. Absolute
// times in the response are of that clock. Without a Date, it is our own clock.
func (r *Response) clock() time.Time {
	text := r.Header.Get("Date")
	if text == "" {
		return r.At
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return r.At
	}
	if age, err := strconv.ParseUint(headerValue(r.Header, "Age"), 10, 31); err == nil {
		date = date.Add(time.Duration(age) * time.Second)
	}
	return date
}

// hasJSON reports whether the body is JSON: as the header says, or by its first byte.
func (r *Response) hasJSON() bool {
	if isJSONType(r.Header.Get("Content-Type")) {
		return true
	}
	text := bytes.TrimSpace(r.Body)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}
