package httpapi

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
)

func (d *jobDecoder) fail(field, reason string) {
	if len(field) > 64 { // an unknown one: its beginning is enough
		field = field[:64] + "..."
	}
	d.errs = append(d.errs, &shaper.FieldError{Field: field, Reason: reason})
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

// hasLoneSurrogate reports whether a JSON string escapes only one half of a surrogate pair. encoding/json replaces it by another character.
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

// units reads the budget units that the job reserves: amounts by unit.
func (d *jobDecoder) units(field string, value []byte) {
	units := shaper.Units{}
	eachMember(value, func(unit string, value []byte, again bool) bool {
		amount, err := strconv.ParseInt(string(value), 10, 64)
		switch {
		case again:
			d.fail(field+"."+unit, "is given twice")
		case err != nil || amount < 0:
			d.fail(field+"."+unit, "want a whole number, 0 or more")
		default:
			units[unit] = amount
		}
		return len(d.errs) < maxFieldFault && len(units) <= shaper.MaxUnits
	})
	if len(units) > 0 {
		d.job.Units = units
	}
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
		return given && lines <= shaper.MaxHeaders
	})
	if lines == 0 {
		d.fail(field, "is an empty list: give a string or a list of strings, or leave it out")
	}
	return texts, lines
}

// eachHeader calls read with each member of an object of headers, and returns the number of header lines. It stops at the first line too many: the
// worker counts the lines, after all were read.
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
		if lines > shaper.MaxHeaders {
			d.fail(field, fmt.Sprintf("more than %d of them: at most %[1]d are taken", shaper.MaxHeaders))
			return false
		}
		return len(d.errs) < maxFieldFault
	})
	if !isObject {
		d.fail(field, "want an object of names and strings")
	}
}

func isNull(value []byte) bool { return string(value) == "null" }
