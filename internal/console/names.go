package console

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// shellWord writes a text as one word of a shell, for the commands that pages show. What cannot be seen, and what a page would show as less, is escaped
// as bash, zsh and ksh read it.
func shellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,"
	switch {
	case text != "" && strings.Trim(text, plain) == "":
		return text
	case !strings.ContainsFunc(text, isHidden) && !strings.Contains(text, "  "):
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var word strings.Builder
	for _, r := range text {
		switch {
		case isHidden(r) || r == ' ':
			for _, b := range []byte(string(r)) {
				fmt.Fprintf(&word, `\x%02x`, b)
			}
		case r == '\'' || r == '\\':
			word.WriteString(`\` + string(r))
		default:
			word.WriteRune(r)
		}
	}
	return "$'" + word.String() + "'"
}

// isHidden reports whether a character cannot be seen, or turns text around.
func isHidden(r rune) bool { return !unicode.IsPrint(r) }

// shownName is a name as a page shows it: in quotes and escaped where it has hidden characters, or begins or ends with blanks.
func shownName(name string) string {
	if name != "" && (strings.TrimSpace(name) != name || strings.ContainsFunc(name, isHidden)) {
		return strconv.Quote(name)
	}
	return name
}
