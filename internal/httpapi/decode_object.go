package httpapi

import (
	"errors"
	"net/http"
	"strings"
)

// readBodyBy reads a JSON object by a function that reports whether it is one.
func readBodyBy(w http.ResponseWriter, r *http.Request, most int64, read func(d *jobDecoder, body []byte) bool) *fault {
	if _, f := mediaType(r, typeJSON, typeMergePatch); f != nil {
		return f
	}
	body, f := readText(w, r, most, "no more is wanted here")
	if f != nil {
		return f
	}
	if err := checkJSON(body); err != nil {
		return invalid(fieldErrors(err))
	}
	return readBytesBy(body, read)
}

// readBytesBy reads valid JSON by a function that reports whether it is an object.
func readBytesBy(body []byte, read func(d *jobDecoder, body []byte) bool) *fault {
	var d jobDecoder // for its readers of values
	if !read(&d, body) {
		return invalid(fieldErrors(bodyFault("want a JSON object")))
	}
	if err := errors.Join(d.errs...); err != nil {
		return invalid(fieldErrors(err))
	}
	return nil
}

// object calls member with each member of an object that is neither null nor
// given twice.
func (d *jobDecoder) object(data []byte, member func(d *jobDecoder, name string, value []byte)) (isObject bool) {
	return eachMember(data, func(name string, value []byte, again bool) bool {
		switch {
		case again:
			d.fail(name, "is given twice")
		case isNull(value):
			d.fail(name, "is null: leave it out")
		default:
			member(d, name, value)
		}
		return len(d.errs) < maxFieldFault
	})
}

// truth reads true or false.
func (d *jobDecoder) truth(name string, value []byte) bool {
	if is := string(value); is != "true" && is != "false" {
		d.fail(name, "want true or false")
	}
	return string(value) == "true"
}

// anyOf lists names as a sentence does: low, normal or high.
func anyOf(names []string) string {
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return strings.Join(names, "")
}
