// Package shellword writes commands as a person types them into a shell.
package shellword

import (
	"fmt"
	"strings"
	"unicode"
)

// Join returns a command whose words a shell reads unchanged.
func Join(words ...string) string {
	line := make([]string, len(words))
	for i, word := range words {
		line[i] = Quote(word)
	}
	return strings.Join(line, " ")
}

// Quote returns a text as one word of a shell. Characters that cannot be seen, or that turn text around, are escaped.
func Quote(text string) string {
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

func isHidden(r rune) bool { return !unicode.IsPrint(r) }
