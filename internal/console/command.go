package console

import "strings"

// commandLine is a command as one types it into a shell.
func commandLine(words ...string) string {
	line := make([]string, len(words))
	for i, word := range words {
		line[i] = shellWord(word)
	}
	return strings.Join(line, " ")
}
