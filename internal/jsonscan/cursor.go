// Package jsonscan reads untrusted JSON without building values. It returns parts of the text, so a text of millions of values needs no memory besides
// itself. It accepts the same texts as [encoding/json]: RFC 8259 with bytes in texts that are not UTF-8, nested at most 10,000 deep. Each byte is read
// once, without recursion.
package jsonscan

import (
	"fmt"
	"io"
)

// maxDepth is how deep values may be nested, as in encoding/json.
const maxDepth = 10_000

// Cursor is a position before a value of a JSON text, which may end anywhere. After a fault it reads nothing more. It is not safe for concurrent use.
type Cursor struct {
	text []byte
	at   int
	err  error
}

// New returns a cursor in front of the value of a text. The cursor never changes the text.
func New(text []byte) *Cursor { return &Cursor{text: text} }

// Err returns why the cursor reads nothing more: [io.ErrUnexpectedEOF] if the text ends too early, or the fault and its byte. It is nil before that.
func (c *Cursor) Err() error { return c.err }

// Kind returns the kind of the next value: '{' an object, '[' a list, '"' a text, 't' or 'f' a truth value, 'n' null, '0' a number. It is 0 if there is
// none.
func (c *Cursor) Kind() byte {
	switch b := c.peek(); b {
	case '{', '[', '"', 't', 'f', 'n':
		return b
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return '0'
	}
	return 0
}

// Value reads the next value and returns its text, nil after a fault.
func (c *Cursor) Value() []byte {
	c.peek()
	begin := c.at
	if !c.skip() {
		return nil
	}
	return c.text[begin:c.at:c.at]
}

// Parts enters the next value and calls each before each of its parts, in order. For a member of an object, name is its name, in its quotes and with its
// escapes; for an element of a list, name is nil. each may read the part from the cursor; Parts skips the rest. A value without parts is skipped. Parts
// returns false after a fault, and after each returns false: the cursor then stays where each stopped.
func (c *Cursor) Parts(each func(name []byte) bool) bool {
	open := c.peek()
	if open != '{' && open != '[' {
		return c.skip()
	}
	c.at++
	if c.peek() == open+2 { // the codes of brackets that belong together differ by 2
		c.at++
		return true
	}
	for {
		var name []byte
		if open == '{' {
			if name = c.name(); name == nil {
				return false
			}
		}
		c.peek()
		before := c.at
		if !each(name) || c.err != nil || c.at == before && !c.skip() {
			return false
		}
		switch c.peek() {
		case ',':
			c.at++
		case open + 2:
			c.at++
			return true
		default:
			return c.fail("want a comma or the end of the list or object")
		}
	}
}

// Offset returns how many bytes of the text are read.
func (c *Cursor) Offset() int { return c.at }

// End reports whether only spaces follow, and no fault was found.
func (c *Cursor) End() bool { return c.peek() == 0 && c.err == nil && c.at == len(c.text) }

// peek skips spaces and returns the next byte, 0 at the end and after a fault.
func (c *Cursor) peek() byte {
	for c.at < len(c.text) && c.err == nil {
		switch b := c.text[c.at]; b {
		case ' ', '\t', '\r', '\n':
			c.at++
		default:
			return b
		}
	}
	return 0
}

// fail records the fault at the position of the cursor.
func (c *Cursor) fail(reason string) bool {
	switch {
	case c.err != nil:
	case c.at >= len(c.text):
		c.err = io.ErrUnexpectedEOF
	default:
		c.err = fmt.Errorf("%s, at byte %d", reason, c.at+1)
	}
	return false
}

// skip reads the next value.
func (c *Cursor) skip() bool {
	if b := c.peek(); b != '{' && b != '[' {
		return c.scalar(b)
	}
	return c.nested()
}

// nested reads an object or a list with all that is in it.
func (c *Cursor) nested() bool {
	var objects [(maxDepth + 63) / 64]uint64 // a bit for each level: it is an object
	depth := 0
	for {
		open := c.peek()
		if open == '{' || open == '[' {
			if depth == maxDepth {
				return c.fail("nested too deep")
			}
			objects[depth/64] &^= 1 << (depth % 64)
			if open == '{' {
				objects[depth/64] |= 1 << (depth % 64)
			}
			depth++
			c.at++
			if c.peek() != open+2 {
				if open == '{' && c.name() == nil {
					return false
				}
				continue
			}
			c.at++
			depth--
		} else if !c.scalar(open) {
			return false
		}
		for { // after a value
			if depth == 0 {
				return true
			}
			isObject, closed := objects[(depth-1)/64]>>((depth-1)%64)&1 == 1, byte(']')
			if isObject {
				closed = '}'
			}
			b := c.peek()
			if b == closed {
				c.at++
				depth--
				continue
			}
			if b != ',' {
				return c.fail("want a comma or the end of the list or object")
			}
			c.at++
			if isObject && c.name() == nil {
				return false
			}
			break
		}
	}
}

// name reads the name of a member and the colon after it, and returns the name in its quotes, nil after a fault.
func (c *Cursor) name() []byte {
	if c.peek() != '"' {
		c.fail("want the name of a member")
		return nil
	}
	begin := c.at
	if !c.quoted() {
		return nil
	}
	name := c.text[begin:c.at:c.at]
	if c.peek() != ':' {
		c.fail("want a colon")
		return nil
	}
	c.at++
	return name
}

// scalar reads a value without parts that begins with b.
func (c *Cursor) scalar(b byte) bool {
	switch b {
	case '"':
		return c.quoted()
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	}
	return c.number()
}

func (c *Cursor) word(word string) bool {
	for i := range len(word) {
		if c.at >= len(c.text) || c.text[c.at] != word[i] {
			return c.fail("want a value")
		}
		c.at++
	}
	return true
}

// quoted reads a text.
func (c *Cursor) quoted() bool {
	for c.at++; c.at < len(c.text); c.at++ {
		switch b := c.text[c.at]; {
		case b == '"':
			c.at++
			return true
		case b < ' ':
			return c.fail("a control character in a text")
		case b == '\\':
			if !c.escape() {
				return false
			}
		}
	}
	return c.fail("")
}

// escape reads an escape, and stays at its last byte.
func (c *Cursor) escape() bool {
	if c.at++; c.at >= len(c.text) {
		return c.fail("")
	}
	switch c.text[c.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			if c.at++; c.at >= len(c.text) || hex(c.text[c.at]) < 0 {
				return c.fail("want four hexadecimal digits")
			}
		}
		return true
	}
	return c.fail("an unknown escape in a text")
}

// number reads a number.
func (c *Cursor) number() bool {
	if c.is('-') {
		c.at++
	}
	switch {
	case c.is('0'):
		c.at++
	case !c.digits():
		return c.fail("want a value")
	}
	if c.is('.') {
		if c.at++; !c.digits() {
			return c.fail("want a digit")
		}
	}
	if c.is('e') || c.is('E') {
		if c.at++; c.is('+') || c.is('-') {
			c.at++
		}
		if !c.digits() {
			return c.fail("want a digit")
		}
	}
	return true
}

func (c *Cursor) is(b byte) bool { return c.err == nil && c.at < len(c.text) && c.text[c.at] == b }

// digits reads digits, and reports whether there is one.
func (c *Cursor) digits() bool {
	begin := c.at
	for c.err == nil && c.at < len(c.text) && c.text[c.at] >= '0' && c.text[c.at] <= '9' {
		c.at++
	}
	return c.at > begin
}

// hex is the value of a hexadecimal digit, below 0 of another byte.
func hex(b byte) rune {
	switch {
	case b >= '0' && b <= '9':
		return rune(b - '0')
	case b >= 'a' && b <= 'f':
		return rune(b-'a') + 10
	case b >= 'A' && b <= 'F':
		return rune(b-'A') + 10
	}
	return -1
}
