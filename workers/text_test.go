package workers

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tundish-io/tundish/internal/must"
)

func TestSnippet(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                          "",
		"plain":                     "plain",
		"two\r\nlines\tand a tab":   "two\nlines\tand a tab",
		"esc\x1b[31m nul\x00":       "esc [31m nul ",
		"not \xff\xfe UTF-8":        "not ?? UTF-8",
		"reordered \u202egnp.exe":   "reordered  gnp.exe",
		"Grüße, 世界":                 "Grüße, 世界",
		strings.Repeat("a", 5000):   strings.Repeat("a", MaxSnippet),
		strings.Repeat("世", 1000):   strings.Repeat("世", MaxSnippet/3),
		strings.Repeat("\xff", 2e3): strings.Repeat("?", MaxSnippet),
	} {
		if got := Snippet([]byte(in)); got != want {
			t.Errorf("Snippet(%.40q) = %.40q (%d bytes), want %.40q (%d)", in, got, len(got), want, len(want))
		}
	}
}

func FuzzSnippet(f *testing.F) {
	f.Add([]byte("a\x00\xff\u202e"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got := Snippet(text); len(got) > MaxSnippet || !utf8.ValidString(got) {
			t.Errorf("Snippet(%q) = %q", text, got)
		}
	})
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://u:p@example.com:8443/a/b?token=c#d": "https://example.com:8443",
		"http://[::1]/x": "http://[::1]",
		"://":            "(URL withheld)",
		"secret":         "(URL withheld)",
		"":               "(URL withheld)",
	} {
		must.Equal(t, RedactURL(in), want, "RedactURL(%q)", in)
	}
}
