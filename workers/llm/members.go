package llm

import (
	"bytes"
	"encoding/json"
)

// members returns the members of a JSON object, nil if the text is none, and the name of one that is there twice, "" if none is.
func members(text []byte) (object map[string]json.RawMessage, twice string) {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') || !json.Valid(text) {
		return nil, ""
	}
	object = map[string]json.RawMessage{}
	for d.More() {
		name, _ := d.Token() // the text is valid, so that there are no errors
		var value json.RawMessage
		_ = d.Decode(&value)
		key, _ := name.(string)
		if _, known := object[key]; known {
			twice = key
		}
		object[key] = value
	}
	return object, twice
}

// isGiven reports whether a member is there and not null, which says as little to both APIs.
func isGiven(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// isObject reports whether a member is there and an object.
func isObject(value json.RawMessage) bool { return len(value) > 0 && value[0] == '{' }

// each calls f with the elements of a list, which is valid JSON, until f returns false.
func each(list json.RawMessage, f func(element json.RawMessage) bool) {
	d := json.NewDecoder(bytes.NewReader(list))
	_, _ = d.Token() // the begin of the list
	for d.More() {
		var element json.RawMessage
		if d.Decode(&element) != nil || !f(element) {
			return
		}
	}
}
