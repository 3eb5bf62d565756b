package workers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a JSON pointer in a rule, in bytes and in steps.
const (
	maxPointer = 256
	maxSteps   = 16
)

// anyStep is the step that every member and every element fits.
const anyStep = "*"

// pointer is a JSON pointer (RFC 6901), parsed: a step for each level. The step "*" stands for every member or element.
type pointer []string

var unescape = strings.NewReplacer("~1", "/", "~0", "~") //nolint:gochecknoglobals // a constant

func parsePointer(text string) (pointer, error) {
	switch {
	case !strings.HasPrefix(text, "/"):
		return nil, errors.New(`want a JSON pointer, such as "/error/code" or "/errors/*/code"`)
	case len(text) > maxPointer || strings.Count(text, "/") > maxSteps:
		return nil, fmt.Errorf("want %d bytes and %d steps at most", maxPointer, maxSteps)
	}
	steps := strings.Split(text[1:], "/")
	for i, step := range steps {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(step), "~") {
			return nil, errors.New(`in a JSON pointer, "~" is written "~0", and "/" in a name "~1"`)
		}
		steps[i] = unescape.Replace(step)
	}
	return steps, nil
}

// reader reads single values of a JSON text, which may end anywhere. It copies no more of it than one value at a time.
type reader struct {
	d     *json.Decoder
	value json.RawMessage // the last one that was read
}

func readJSON(text []byte) *reader { return &reader{d: json.NewDecoder(bytes.NewReader(text))} }

// errFound ends a search.
var errFound = errors.New("found")

// each calls found for each value at a pointer, in their order, with the reader in front of it: found reads the value. It ends with the
// first error, that of found or of the text.
func (r *reader) each(at pointer, found func() error) error {
	if len(at) == 0 {
		return found()
	}
	open, err := r.d.Token()
	if err != nil {
		return err
	}
	delim, _ := open.(json.Delim)
	if delim != '{' && delim != '[' {
		return nil // a value without parts, or the null, which is no delimiter
	}
	for i := 0; r.d.More(); i++ {
		step := strconv.Itoa(i)
		if delim == '{' {
			name, err := r.d.Token()
			if err != nil {
				return err
			}
			step, _ = name.(string)
		}
		if at[0] != anyStep && at[0] != step {
			err = r.read()
		} else {
			err = r.each(at[1:], found)
		}
		if err != nil {
			return err
		}
	}
	_, err = r.d.Token()
	return err
}

// read reads the next value into r.value.
func (r *reader) read() error { return r.d.Decode(&r.value) }

// text is the last value as a rule compares it: a string without its quotes and escapes, a number or a truth value as it is spelled. Of an
// object and a list it is "". exists is false of null.
func (r *reader) text() (text string, exists bool) {
	switch r.value[0] {
	case 'n':
		return "", false
	case '{', '[':
		return "", true
	case '"':
		if json.Unmarshal(r.value, &text) != nil {
			return "", false
		}
		return text, true
	}
	return string(r.value), true
}

// find returns the first value at a pointer that fits, as a text. A nil fits takes any that is not null.
func find(body []byte, at pointer, fits func(text string) bool) (text string, found bool) {
	r := readJSON(body)
	err := r.each(at, func() error {
		if err := r.read(); err != nil {
			return err
		}
		value, exists := r.text()
		if exists && (fits == nil || fits(value)) {
			text = value
			return errFound
		}
		return nil
	})
	return text, errors.Is(err, errFound)
}
