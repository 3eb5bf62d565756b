package workers

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// JudgedBytes is how many bytes of a response's body a [Policy] reads. The rest is ignored.
const JudgedBytes = 64 << 10

// Response is the response to an attempt, as far as a [Policy] judges it. The body is foreign: nothing is decoded but the values that
// rules point at.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // its beginning
	Broke  bool   // the connection broke before the end of the body
	At     time.Time

	// Number is the number of the attempt: see [shaper.Attempt]. 0 counts as 1.
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

// Text returns the beginning of the decompressed body, JudgedBytes at most. For another coding than gzip it returns the body unchanged, and for a broken
// one the part that can be read.
func (r *Response) Text() []byte {
	body := r.Body[:min(len(r.Body), JudgedBytes)]
	if coding := headerValue(r.Header, "Content-Encoding"); !strings.EqualFold(coding, "gzip") && !strings.EqualFold(coding, "x-gzip") {
		return body
	}
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body
	}
	text, _ := io.ReadAll(io.LimitReader(zipped, JudgedBytes)) // the rest may not have been read
	return text
}

// hasJSON reports whether the body is JSON: as the header says, or by its first byte.
func (r *Response) hasJSON() bool {
	if isJSONType(r.Header.Get("Content-Type")) {
		return true
	}
	text := bytes.TrimSpace(r.Body)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}
