package jsonscan

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
