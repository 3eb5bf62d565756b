package console

import (
	"strconv"
	"strings"
	"unicode"
)

// isHidden reports whether a character cannot be seen, or turns text around.
func isHidden(r rune) bool { return !unicode.IsPrint(r) }

// shownName returns a name as a page shows it. It is in quotes and escaped if it has hidden characters, or begins or ends with spaces.
func shownName(name string) string {
	if name != "" && (strings.TrimSpace(name) != name || strings.ContainsFunc(name, isHidden)) {
		return strconv.Quote(name)
	}
	return name
}
