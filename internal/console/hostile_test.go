package console_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

const hostileTexts = 200

// hostile are texts that would be more than text if a page, a template, a script, a database, a terminal, a spreadsheet or a path took them for that.
func hostile() (texts []string) {
	parts := []string{
		// Markup, in each place where a page has text of others.
		`<x9 onload=alert(1)>`, `"><x9>`, `'><x9>`, `</td></tr></table><x9>`, `</title><x9>`, `</textarea><x9>`, `</pre><x9>`, `</option></select><x9>`, `<!--<x9>`, `--><x9>`, `]]><x9>`,
		`<script>x9</script>`, `<svg/onload=x9>`, `<img src=x onerror=x9>`, `<a href=javascript:x9>x</a>`, `<style>*{}</style>`, `<base href=//evil.example>`, `<iframe srcdoc=x9>`,
		`<meta http-equiv=refresh content=0>`, `<form action=//evil.example><button>`, `" onmouseover=x9 y="`, `' onfocus=x9 autofocus y='`, "`onx=x9`", ` onx=x9 `, `&lt;x9&gt;`, `&#60;x9&#62;`, `&amp;amp;`, `<`,
		// Templates, SQL, Redis.
		`{{.}}`, `{{define "content"}}x9{{end}}`, `{{template "layout.html" .}}`, `${7*7}`, `<%= x9 %>`, `' OR 1=1 --`, `"; DROP TABLE x9; --`, "\r\nFLUSHALL\r\n", "*1\r\n$4\r\nPING\r\n", `redis.call('x9')`,
		// Paths and addresses.
		`../../etc/passwd`, `..`, `.`, `/`, `a/b`, `a\b`, `..%2f..%2f`, `%2e%2e/`, `%00`, `%zz`, `%25%32%65`, `//evil.example/x9`, `\\evil.example`, `javascript:x9`, `data:text/html,<x9>`, `?x=1&y=2`, `#x9`, `a;b`, `a+b c`, `:`,
		// Spreadsheets and terminals.
		`=cmd|'/c calc'!A1`, `@SUM(1)`, `+1`, "\x1b[31mred\x1b[0m", "\x1b]0;x9\x07",
		// Characters.
		"\x00", "\x01\x02", "\x7f", "\u0085", "\u2028", "\ufeff", "\t", "\r\n", "\b", "\u202e", "\u202egpj.exe", "\u2066", "\u200b", "\u00ad", "e\u0301\u0301\u0301", "\U0001F468\u200d\U0001F469", "\U0010ffff",
		// No UTF-8.
		"\xff", "\xc3\x28", "\xe2\x82", "\xf0\x9f", "\xed\xa0\x80", "\xc0\xbcx9>", "+ADw-x9+AD4-",
		// Numbers and lengths.
		"1970670598291982290", "1e400", "NaN", "-0", "null", strings.Repeat("a", 255), strings.Repeat("<b>", 80), strings.Repeat("\u202e", 80), strings.Repeat("a", 5000),
	}
	for _, end := range []string{"", `"><x9>`, "\u202e'}}x9<", "\x00</script>"} {
		for _, part := range parts {
			if texts = append(texts, part+end); len(texts) == hostileTexts {
				return texts
			}
		}
	}
	panic(fmt.Sprint("only ", len(texts), " texts"))
}

// hostileTo are the hostile texts for one of many fields: all of them in make soak, else every fourth, so that each is tried in some fields.
func hostileTo(field int) (texts []string) {
	for i, text := range hostile() {
		if redistest.Soak || i%4 == field%4 {
			texts = append(texts, text)
		}
	}
	return texts
}

// benign are a few texts that mean nothing to anybody.
func benign() []string { return []string{"plain", "text"} }

// markup is what pages consist of: elements, and elements with one of their attributes.
type markup map[string]bool

// readPage returns the markup of a page, its text and the values of its attributes, and its links.
func readPage(t *testing.T, page string) (has markup, texts []string, links []string) {
	t.Helper()
	document := must.Get(html.Parse(strings.NewReader(page)))(t)
	has = markup{}
	for node := range document.Descendants() {
		switch node.Type {
		case html.TextNode:
			texts = append(texts, node.Data)
		case html.CommentNode:
			has["a comment"] = true
		case html.ElementNode:
			has[node.Data] = true
			for _, a := range node.Attr {
				has[node.Data+" "+a.Key] = true
				texts = append(texts, a.Val)
				if slices.Contains([]string{"href", "src", "action", "formaction"}, a.Key) {
					links = append(links, a.Val)
				}
			}
		}
	}
	return has, texts, links
}

// judge holds a page to the markup of others, and its links to the console. It returns the texts of the page.
func (known markup) judge(t *testing.T, page seen) []string {
	t.Helper()
	has, texts, links := readPage(t, page.text)
	for what := range has {
		if !known[what] {
			t.Errorf("%q has <%s>, as no page has with a harmless text", page.at, what)
		}
	}
	at := must.Get(url.Parse("http://here.example" + page.at))(t)
	for _, link := range links {
		to, err := at.Parse(link)
		if err != nil || to.Host != at.Host || to.Scheme != "http" || !strings.HasPrefix(to.Path, "/console/") {
			t.Errorf("%q has the link %q", page.at, link)
		}
	}
	return texts
}

// visible is a text as a page has it: without what no page can show.
func visible(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	return strings.Map(func(r rune) rune {
		if r == 0 || r == '\ufffd' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

// wantShown wants a text among those of a page.
func wantShown(t *testing.T, page seen, texts []string, text string) {
	t.Helper()
	if text = visible(text); !slices.ContainsFunc(texts, func(shown string) bool { return strings.Contains(visible(shown), text) }) {
		t.Errorf("%q does not show %q", page.at, text)
	}
}
