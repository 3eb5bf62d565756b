package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// bodyField stands in a fault for the body as a whole.
const bodyField = "body"

// decodeJob reads a job, strictly. A field that is unknown, given twice or of
// another type is an error, and every such error is reported, joined, each a
// [*shaper.FieldError]. Names are compared exactly; null counts as a missing
// field. The payload keeps its bytes as they were sent.
//
// [shaper.Job.Validate] checks the bounds of values. Here is checked what it cannot
// see: whether a given value was empty.
func decodeJob(data []byte) (shaper.Job, error) {
	if err := checkJSON(data); err != nil {
		return shaper.Job{}, err
	}
	return decodeValidJob(data)
}

// decodeValidJob is decodeJob of text that is known to be JSON, such as an element of a valid array.
func decodeValidJob(data []byte) (shaper.Job, error) {
	var d jobDecoder
	isObject := eachMember(data, func(name string, value []byte, again bool) bool {
		if again {
			d.fail(name, "is given twice")
		} else {
			d.member(name, value)
		}
		return len(d.errs) < maxFieldFault
	})
	if !isObject {
		return shaper.Job{}, bodyFault("want a JSON object with the fields of a job")
	}
	d.compose()
	return d.job, errors.Join(d.errs...)
}

// IsJob says whether text is a whole job as the API takes it: an object of fields it knows, with a
// payload, a body, or where the job goes.
func IsJob(text []byte) bool {
	job, err := decodeJob(text)
	return err == nil && (len(job.Payload) > 0 || job.URL != "")
}

type jobDecoder struct {
	job  shaper.Job
	errs []error

	body        string // the field that gave the payload
	contentType string
	path, query string // of a job that names no URL
}

func (d *jobDecoder) fail(field, reason string) {
	if len(field) > 64 { // an unknown one: as much as tells which
		field = field[:64] + "..."
	}
	d.errs = append(d.errs, &shaper.FieldError{Field: field, Reason: reason})
}

func (d *jobDecoder) member(name string, value []byte) {
	switch name {
	case "id":
		if id, given := d.text(name, value); given && id == "" {
			d.fail(name, "is empty: leave it out to have one made")
		} else {
			d.job.ID = id
		}
	case "flow":
		d.job.Flow, _ = d.text(name, value)
	case "group":
		d.job.Group, _ = d.text(name, value)
	case "url":
		d.job.URL, _ = d.text(name, value)
	case "method":
		d.job.Method, _ = d.text(name, value)
	case "headers":
		d.headers(name, value)
	case "payload", "body", "body_base64":
		d.payload(name, value)
	case "content_type":
		d.contentType, _ = d.text(name, value)
	case "path":
		if path, given := d.text(name, value); given {
			d.path = "/" + strings.TrimPrefix(path, "/")
		}
	case "query":
		d.addQuery(name, value)
	case "cost":
		if value[0] == '{' {
			d.fail(name, "as an object by unit is not supported in this version yet: give a number")
		} else {
			d.job.Cost = d.count(name, value)
		}
	case "delay":
		d.job.Delay = d.duration(name, value)
	case "not_before":
		d.notBefore(name, value)
	case "callback_url":
		d.job.CallbackURL, _ = d.text(name, value)
	case "failure_url":
		d.job.FailureURL, _ = d.text(name, value)
	case "max_attempts":
		d.job.MaxAttempts = int(d.count(name, value))
	case "priority":
		if text, given := d.text(name, value); given && text == "" {
			d.fail(name, "is empty: want critical, high, normal or low, or leave it out")
		} else {
			d.job.Priority = shaper.Priority(text)
		}
	case "expires_in":
		before := len(d.errs)
		if d.job.ExpiresIn = d.duration(name, value); d.job.ExpiresIn == 0 && !isNull(value) && len(d.errs) == before {
			d.fail(name, "is nothing: want 1µs or more, or leave it out")
		}
	default:
		d.fail(name, "is not a field of a job")
	}
}

// text reads a string; given is false for null and for a fault.
func (d *jobDecoder) text(field string, value []byte) (text string, given bool) {
	if isNull(value) {
		return "", false
	}
	text, err := unquote(value)
	if err != nil {
		d.fail(field, "want a string")
		return "", false
	}
	if strings.ContainsRune(text, utf8.RuneError) && hasLoneSurrogate(value) {
		d.fail(field, "has half of a surrogate pair, such as \\ud800, which is no character")
		return "", false
	}
	return text, true
}

// hasLoneSurrogate reports whether a string of JSON escapes only one half of a surrogate pair.
// encoding/json makes another character of it.
func hasLoneSurrogate(value []byte) bool {
	escaped := func(at int) (r rune, ok bool) {
		if at+6 > len(value) || value[at] != '\\' || value[at+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(value[at+2:at+6]), 16, 16)
		return rune(n), err == nil
	}
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' {
			continue
		}
		r, ok := escaped(i)
		if !ok {
			i++ // another escape, of one character
			continue
		}
		if i += 5; !utf16.IsSurrogate(r) {
			continue
		}
		low, _ := escaped(i + 1)
		if utf16.DecodeRune(r, low) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// count reads a whole number of 1 or more; 0 stands for null and for a fault.
func (d *jobDecoder) count(field string, value []byte) int64 {
	if isNull(value) {
		return 0
	}
	n, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil || n < 1 {
		d.fail(field, "want a whole number, 1 or more")
		return 0
	}
	return n
}

// duration reads one with a unit; 0 also stands for null and for a fault.
func (d *jobDecoder) duration(field string, value []byte) time.Duration {
	if value[0] >= '0' && value[0] <= '9' {
		d.fail(field, "has no unit: want a duration such as \"10s\"")
		return 0
	}
	text, given := d.text(field, value)
	if !given {
		return 0
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		d.fail(field, "want a duration such as \"10s\", \"1h30m\" or \"250ms\"")
	}
	return duration
}

func (d *jobDecoder) notBefore(field string, value []byte) {
	text, given := d.text(field, value)
	if !given {
		return
	}
	d.job.NotBefore = d.instant(field, text)
}

// instant reads a time. The zero time, which would mean none, is a fault.
func (d *jobDecoder) instant(field, text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() {
		d.fail(field, "want a time of RFC 3339 such as \"2026-03-01T12:00:00Z\"")
	}
	return at
}

// headers reads the headers of a job: an object of names, each with a text or a list of texts.
func (d *jobDecoder) headers(field string, value []byte) {
	headers := map[string][]string{}
	d.eachHeader(field, value, func(field, name string, value []byte) (lines int) {
		texts, lines := d.texts(field, value)
		if len(texts) > 0 {
			headers[name] = texts
		}
		return lines
	})
	if len(headers) > 0 {
		d.job.Headers = headers
	}
}

// texts reads a text, or a list of texts; none of null and of a fault. It stops at the first line too many.
func (d *jobDecoder) texts(field string, value []byte) (texts []string, lines int) {
	if value[0] != '[' {
		if text, given := d.text(field, value); given {
			texts = []string{text}
		}
		return texts, 1
	}
	pieces(value, func(piece []byte) bool {
		lines++
		text, given := d.text(field, piece)
		if isNull(piece) {
			d.fail(field, "has a null: want strings")
		}
		texts = append(texts, text)
		return given && lines <= outgoing.MaxHeaders
	})
	if lines == 0 {
		d.fail(field, "is an empty list: give a string or a list of strings, or leave it out")
	}
	return texts, lines
}

// eachHeader calls read with each member of an object of headers; it returns how many lines they are. eachHeader stops at
// the first line too many: what counts them is the worker, after all are here.
func (d *jobDecoder) eachHeader(field string, value []byte, read func(field, name string, value []byte) (lines int)) {
	if isNull(value) {
		return
	}
	lines := 0
	isObject := eachMember(value, func(name string, value []byte, again bool) bool {
		of := field + "." + name
		if again {
			d.fail(of, "is given twice")
			lines++
		} else {
			lines += read(of, name, value)
		}
		if lines > outgoing.MaxHeaders {
			d.fail(field, fmt.Sprintf("more than %d of them: at most %[1]d are taken", outgoing.MaxHeaders))
			return false
		}
		return len(d.errs) < maxFieldFault
	})
	if !isObject {
		d.fail(field, "want an object of names and strings")
	}
}

// checkJSON reports whether data is one JSON value in UTF-8 and nothing else.
// Values nested deeper than 10,000 are refused.
func checkJSON(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return bodyFault("is empty: want JSON")
	}
	if !utf8.Valid(data) {
		return bodyFault("is not UTF-8")
	}
	if json.Valid(data) {
		return nil
	}
	var whole json.RawMessage
	err := json.Unmarshal(data, &whole) // its error describes the fault
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return bodyFault("is not JSON: %v, at byte %d", syntax, syntax.Offset)
	}
	return bodyFault("is not JSON: %v", err)
}

func isNull(value []byte) bool { return string(value) == "null" }

func bodyFault(format string, args ...any) error {
	return &shaper.FieldError{Field: bodyField, Reason: fmt.Sprintf(format, args...)}
}
