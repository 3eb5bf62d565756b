package workers

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/internal/jsonscan"
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

// fits reports whether a step is the part of a value: a member of a name in its quotes, or the i-th element where that is nil.
func fits(step string, name []byte, i int) bool {
	if step == anyStep {
		return true
	}
	if name != nil {
		return jsonscan.Is(name, step)
	}
	var room [20]byte
	return string(strconv.AppendInt(room[:0], int64(i), 10)) == step
}

// eachAt calls found for each value at a pointer, in their order, with the cursor before it, until found returns false. The text may end anywhere: then
// the cursor has an error.
func eachAt(text *jsonscan.Cursor, at pointer, found func() bool) bool {
	if len(at) == 0 {
		return found()
	}
	i := -1
	return text.Parts(func(name []byte) bool {
		i++
		return !fits(at[0], name, i) || eachAt(text, at[1:], found)
	})
}

// textOf returns a value as a rule compares it: a string without its quotes and escapes, a number or a truth value as it is spelled. For an object and a
// list it is "". exists is false for null.
func textOf(value []byte) (text string, exists bool) {
	if len(value) == 0 { // of a text that ends too early
		return "", false
	}
	switch value[0] {
	case 'n':
		return "", false
	case '{', '[':
		return "", true
	case '"':
		return jsonscan.Text(value, len(value))
	}
	return string(value), true
}

// find returns the first value at a pointer that fits, as a text. A nil fits accepts any value that is not null.
func find(body []byte, at pointer, fits func(text string) bool) (text string, found bool) {
	cursor := jsonscan.New(body)
	eachAt(cursor, at, func() bool {
		value := cursor.Value()
		if value == nil {
			return false
		}
		said, exists := textOf(value)
		if found = exists && (fits == nil || fits(said)); found {
			text = said
		}
		return !found
	})
	return text, found
}
