package console

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tundish-io/tundish/internal/shellword"
)

// A shell reads the words of a command as they were.
func FuzzCommandLine(f *testing.F) {
	for _, word := range []string{"a", "", "it's", "a b", "$(id)", "`id`", "é\u202e", "-x", "a\nb", "*"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if strings.ContainsRune(word, 0) || !utf8.ValidString(word) {
			return
		}
		out, err := exec.CommandContext(t.Context(), "bash", "-c", shellword.Join("printf", "%s", word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q is read as %q: %v", word, out, err)
		}
	})
}
