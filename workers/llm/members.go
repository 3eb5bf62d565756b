package llm

import (
	"encoding/json"

	"github.com/tundish-io/tundish/internal/jsonscan"
)

// Bodies are bytes from callers and providers. [jsonscan] finds the parts that are read: no tree of values is built.

// maxWord bounds a name, a type, a code or an id in a body, in bytes. The rest is cut.
const maxWord = 256

// names are the names of the members that are read of an object, by themselves.
type names map[string]string

func namesOf(lists ...[]string) names {
	n := names{}
	for _, list := range lists {
		for _, name := range list {
			n[name] = name
		}
	}
	return n
}

// find returns the name that a quoted text equals, "" if none.
func (n names) find(quoted []byte) string {
	var room [maxWord]byte
	return n[string(jsonscan.Append(room[:0], quoted, maxWord))]
}

// members returns the members of a JSON object that are wanted, nil if the text is no object, and the name of one that is there twice, "" if none is.
// Of two the last one counts.
func members(text []byte, wanted names) (object map[string]json.RawMessage, twice string) {
	if jsonscan.New(text).Kind() != '{' {
		return nil, ""
	}
	object = map[string]json.RawMessage{}
	isObject := jsonscan.Members(text, func(quoted, value []byte) {
		name := wanted.find(quoted)
		if name == "" {
			return
		}
		if _, known := object[name]; known {
			twice = name
		}
		object[name] = value
	})
	if !isObject {
		return nil, ""
	}
	return object, twice
}

// isGiven reports whether a member is present and not null: to both APIs null means absent.
func isGiven(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// isObject reports whether a member is there and an object.
func isObject(value json.RawMessage) bool { return len(value) > 0 && value[0] == '{' }

// textOf returns the text of a member, "" if it is no text.
func textOf(value json.RawMessage) string {
	text, _ := jsonscan.Text(value, maxWord)
	return text
}
