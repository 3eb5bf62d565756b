package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/inputtext"
	"github.com/tundish-io/tundish/shaper"
)

// bodyField names the body as a whole in a fault.
const bodyField = "body"

// decodeJob reads a job, strictly. A field that is unknown, given twice or of another type is an error. All such errors are returned joined, each a
// [*shaper.FieldError]. Names are compared exactly; null counts as a missing field. The payload keeps its bytes.
//
// [shaper.Job.Validate] checks the bounds of values. decodeJob checks whether a given value was empty, which Validate cannot see.
func decodeJob(data []byte) (shaper.Job, error) {
	if err := checkJSON(data); err != nil {
		return shaper.Job{}, err
	}
	return decodeValidJob(data)
}

// decodeValidJob is decodeJob for valid JSON, such as an element of a valid array.
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

// IsJob reports whether text is a whole job as the API accepts it: an object of known fields, with a payload, a body, or a target.
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
			d.units(name, value)
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
	case "bundle":
		d.job.Bundle, _ = d.text(name, value)
	case "max_attempts":
		d.job.MaxAttempts = int(d.count(name, value))
	case "priority":
		if text, given := d.text(name, value); given && text == "" {
			d.fail(name, "is empty: want critical, high, normal or low, or leave it out")
		} else {
			d.job.Priority = shaper.Priority(text)
		}
	case "expires_in":
		d.job.ExpiresIn = d.someTime(name, value)
	case "max_wait":
		d.job.MaxWait = d.someTime(name, value)
	default:
		d.fail(name, "is not a field of a job")
	}
}

// someTime is a duration that is not 0.
func (d *jobDecoder) someTime(name string, value []byte) time.Duration {
	before := len(d.errs)
	given := d.duration(name, value)
	if given == 0 && !isNull(value) && len(d.errs) == before {
		d.fail(name, "is nothing: want 1µs or more, or leave it out")
	}
	return given
}

// checkJSON returns an error unless data is one JSON value in UTF-8 and nothing else. Values nested deeper than 10,000 are refused.
func checkJSON(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return bodyFault("is empty: want JSON")
	}
	if err, ok := errors.AsType[*inputtext.NotUTF8Error](inputtext.Check(data, 1)); ok {
		if !bytes.Contains(bytes.TrimSpace(data), []byte("\n")) { // a line of several, or a text without lines
			return bodyFault("is not UTF-8 at byte %d: send it as UTF-8", err.Column)
		}
		return bodyFault("is not UTF-8 in line %d, at byte %d of it: send it as UTF-8", err.Line, err.Column)
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

func bodyFault(format string, args ...any) error {
	return &shaper.FieldError{Field: bodyField, Reason: fmt.Sprintf(format, args...)}
}
