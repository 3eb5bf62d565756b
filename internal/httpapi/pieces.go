package httpapi

import (
	"bytes"
	"encoding/json"
)

// pieces calls each with the pieces of a JSON array or object until it returns false: the
// elements of an array; of an object a name and its value in turn. They share the memory of
// data, which must be valid JSON, so that a body of millions of pieces costs no more than itself.
func pieces(data []byte, each func(piece []byte) bool) {
	depth, start := 0, 0
	for i := 0; i < len(data); i++ {
		end := false
		switch data[i] {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			if depth++; depth == 1 {
				start = i + 1
			}
		case ']', '}':
			depth--
			end = depth == 0
		case ',', ':':
			end = depth == 1
		}
		if !end {
			continue
		}
		piece := bytes.TrimSpace(data[start:i:i])
		if start = i + 1; len(piece) > 0 && !each(piece) { // empty: of [] and {}
			return
		}
	}
}

// eachMember calls each with every member of an object of valid JSON until it
// returns false; again reports a name that came before. It returns false when
// data is no object.
func eachMember(data []byte, each func(name string, value []byte, again bool) bool) (isObject bool) {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		return false
	}
	seen := map[string]bool{}
	name, named := "", false
	pieces(data, func(piece []byte) bool {
		if named = !named; named {
			name, _ = unquote(piece) // a string, as data is valid
			return true
		}
		again := seen[name]
		seen[name] = true
		return each(name, piece, again)
	})
	return true
}

// unquote reads a string of valid JSON. Most have nothing escaped, and are what stands between the quotes.
func unquote(value []byte) (text string, err error) {
	if value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), nil
	}
	err = json.Unmarshal(value, &text)
	return text, err
}
