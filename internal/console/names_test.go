package console

import (
	"testing"

	"github.com/tundish-io/tundish/internal/shellword"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"acme":            {"acme", "acme"},
		"":                {"''", ""},
		" ":               {"' '", `" "`},
		"a  b":            {`$'a\x20\x20b'`, "a  b"},
		"a\nb":            {`$'a\x0ab'`, `"a\nb"`},
		"it's":            {`'it'\''s'`, "it's"},
		"a\u202e'\\b":     {`$'a\xe2\x80\xae\'\\b'`, `"a\u202e'\\b"`},
		"$(rm -rf /) `x`": {"'$(rm -rf /) `x`'", "$(rm -rf /) `x`"},
		"ünï":             {"'ünï'", "ünï"},
	} {
		if word, shown := shellword.Quote(name), shownName(name); word != want[0] || shown != want[1] {
			t.Errorf("%q: %s and %s, want %s and %s", name, word, shown, want[0], want[1])
		}
	}
}
