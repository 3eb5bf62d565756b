package console

import (
	"strconv"
	"strings"
	"unicode"
)

// shellWord writes a text as one word of a shell, for the commands that pages show.
func shellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,"
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// shownName is a name as a page shows it: in quotes and escaped where it has characters that cannot be seen, or that turn the text around.
func shownName(name string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if name != "" && (strings.TrimSpace(name) != name || strings.ContainsFunc(name, hidden)) {
		return strconv.Quote(name)
	}
	return name
}
