package console

import (
	"regexp"
	"strings"
)

// plainWord is a word that a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// commandLine is a command as one types it into a shell.
func commandLine(words ...string) string {
	line := make([]string, len(words))
	for i, word := range words {
		if line[i] = word; !plainWord.MatchString(word) {
			line[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(line, " ")
}
