package workers

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSnippet bounds what [Snippet] returns, in bytes.
const MaxSnippet = 1 << 10

// Snippet returns the beginning of a text from outside, fit to be stored and shown. It is at most [MaxSnippet] bytes of valid UTF-8, in whole
// characters. It drops control characters except line feeds and tabs, and invisible characters that could reorder the text.
func Snippet(text []byte) string {
	if len(text) > MaxSnippet {
		text = text[:MaxSnippet]
		for cut := len(text) - 1; cut >= MaxSnippet-utf8.UTFMax; cut-- {
			if utf8.RuneStart(text[cut]) {
				if !utf8.FullRune(text[cut:]) {
					text = text[:cut]
				}
				break
			}
		}
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return -1
		case r == utf8.RuneError: // three bytes for one that was wrong: would outgrow the bound
			return '?'
		case r == '\n', r == '\t', unicode.IsGraphic(r):
			return r
		default:
			return ' '
		}
	}, string(text))
}

// RedactURL returns the scheme and host of a URL: all that may be shown of it.
// The query and the user information hold credentials, and with many chat
// services so does the path.
func RedactURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return "(URL withheld)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}
