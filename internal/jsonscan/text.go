package jsonscan

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Valid reports whether a text is one JSON value and nothing else.
func Valid(text []byte) bool {
	c := New(text)
	return c.skip() && c.End()
}

// Members calls each with the members of an object, in order: the name in its quotes, and the value. It reports whether the text is an object and
// nothing else. If not, each was called with the members before the fault.
func Members(text []byte, each func(name, value []byte)) bool {
	c := New(text)
	if c.Kind() != '{' {
		return false
	}
	return c.Parts(func(name []byte) bool {
		value := c.Value()
		if value == nil {
			return false
		}
		each(name, value)
		return true
	}) && c.End()
}

// Elements calls each with the elements of a list, in order, until each returns false. It reports whether it reached the end of a list.
func Elements(text []byte, each func(element []byte) bool) bool {
	c := New(text)
	if c.Kind() != '[' {
		return false
	}
	return c.Parts(func([]byte) bool {
		element := c.Value()
		return element != nil && each(element)
	})
}

// Is reports whether a text of valid JSON, in its quotes, equals want. It is false for any other value.
func Is(quoted []byte, want string) bool {
	inside, ok := inQuotes(quoted)
	switch {
	case !ok || len(inside) > 6*len(want):
		return false
	case isPlain(inside):
		return string(inside) == want
	}
	var room [64]byte
	return string(Append(room[:0], quoted, len(want)+1)) == want
}

// Text returns the content of a text of valid JSON, in its quotes: at most the first most bytes, to the end of a character. ok is false for another
// value.
func Text(value []byte, most int) (text string, ok bool) {
	inside, ok := inQuotes(value)
	if !ok {
		return "", false
	}
	if len(inside) <= most && isPlain(inside) {
		return string(inside), true
	}
	return string(Append(make([]byte, 0, min(len(inside), most)), value, most)), true
}

// Append appends the result of Text to a buffer. It allocates nothing if the buffer has room.
func Append(buffer, value []byte, most int) []byte {
	inside, _ := inQuotes(value)
	for most += len(buffer); len(inside) > 0; {
		r, size := first(inside)
		if len(buffer)+utf8.RuneLen(r) > most {
			break
		}
		buffer, inside = utf8.AppendRune(buffer, r), inside[size:]
	}
	return buffer
}

// Len returns the length of a text of valid JSON, in its quotes, in bytes; 0 for another value.
func Len(value []byte) (n int64) {
	inside, _ := inQuotes(value)
	if isPlain(inside) {
		return int64(len(inside))
	}
	for len(inside) > 0 {
		r, size := first(inside)
		n, inside = n+int64(utf8.RuneLen(r)), inside[size:]
	}
	return n
}

func inQuotes(value []byte) (inside []byte, ok bool) {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return nil, false
	}
	return value[1 : len(value)-1], true
}

// isPlain reports whether the inside of a text needs no decoding.
func isPlain(inside []byte) bool { return bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) }

var escaped = [256]rune{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'} //nolint:gochecknoglobals // a constant

// first returns the first character of the inside of a text, and the number of its bytes there. Bytes that are not UTF-8, and half of a surrogate pair,
// are U+FFFD, as in encoding/json.
func first(inside []byte) (r rune, size int) {
	if inside[0] != '\\' {
		return utf8.DecodeRune(inside)
	}
	if len(inside) < 2 {
		return utf8.RuneError, 1
	}
	if inside[1] != 'u' {
		if r = escaped[inside[1]]; r == 0 {
			r = rune(inside[1])
		}
		return r, 2
	}
	if r = unit(inside); !utf16.IsSurrogate(r) {
		return r, min(6, len(inside))
	}
	if pair := utf16.DecodeRune(r, unit(inside[6:])); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// unit returns the code unit of an escape \uXXXX, U+FFFD for anything else.
func unit(inside []byte) (r rune) {
	if len(inside) < 6 || inside[0] != '\\' || inside[1] != 'u' {
		return utf8.RuneError
	}
	for _, b := range inside[2:6] {
		r = r<<4 | hex(b)
	}
	return r
}
