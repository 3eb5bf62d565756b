package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/tundish-io/tundish/internal/config"
)

const (
	referencePage = "docs/configuration.md"
	referenceHead = "## Every key\n\n<!-- made by go run ./scripts/operations -->\n"
)

var (
	tableLine = regexp.MustCompile(`^#?(\[\[?[a-z._]+\]\]?)\s*(?:#\s*(.*))?$`)
	keyLine   = regexp.MustCompile(`^#?([a-z][a-z0-9_.]*) = (.*?)(?:\s+#\s(.*))?$`)
	moreLine  = regexp.MustCompile(`^\s+#\s(.*)$`)
	proseLine = regexp.MustCompile(`^#(?:\s(.*))?$`)
)

// reference returns the page on the configuration, with every key at its end: the content of internal/config/reference.toml, as a table of keys for each
// table of the file, and the comments between them as text.
func reference() ([]byte, error) {
	content, err := os.ReadFile(referencePage)
	if err != nil {
		return nil, err
	}
	before, _, found := strings.Cut(string(content), referenceHead)
	if !found {
		return nil, fmt.Errorf("%s lacks the lines %q, behind which the keys stand", referencePage, referenceHead)
	}
	r := &referenceWriter{}
	for number, line := range strings.Split(config.Reference, "\n") {
		if number > 0 && !r.line(line) { // the first is the title
			return nil, fmt.Errorf("internal/config/reference.toml:%d: is neither a table, a key, nor a comment: %s", number+1, line)
		}
	}
	r.endTable()
	r.endProse()
	return []byte(before + referenceHead + r.page.String()), nil
}

// referenceWriter turns a commented file into text, line by line.
type referenceWriter struct {
	page    strings.Builder
	prose   []string // that is not written yet
	heading string   // of the rows
	about   string   // the text below the heading
	rows    []string // of keys that are not written yet
}

// line adds a line, and reports whether the page can show it.
func (r *referenceWriter) line(line string) bool {
	table, key, more, prose := tableLine.FindStringSubmatch(line), keyLine.FindStringSubmatch(line), moreLine.FindStringSubmatch(line), proseLine.FindStringSubmatch(line)
	switch {
	case strings.TrimSpace(line) == "":
		r.endTable()
		r.endProse()
	case table != nil:
		r.endTable()
		r.heading, r.about = table[1], table[2]
		if len(r.prose) > 0 { // text above a table is about the table
			fmt.Fprintf(&r.page, "\n### `%s`\n", r.heading)
			r.heading = ""
			r.endProse()
		}
	case key != nil:
		r.endProse()
		r.rows = append(r.rows, fmt.Sprintf("| `%s` | `%s` | %s |", key[1], strings.ReplaceAll(key[2], "|", `\|`), cell(key[3])))
	case more != nil && len(r.rows) > 0:
		last := &r.rows[len(r.rows)-1]
		*last = strings.TrimSuffix(*last, " |") + ". " + cell(more[1]) + " |"
	case prose != nil:
		if len(r.rows) > 0 {
			r.endTable()
		}
		r.prose = append(r.prose, strings.TrimPrefix(prose[1], "!!! "))
	default:
		return false
	}
	return true
}

// endTable writes the rows that there are, below their heading.
func (r *referenceWriter) endTable() {
	if r.heading != "" {
		fmt.Fprintf(&r.page, "\n### `%s`\n", r.heading)
	}
	if r.about != "" {
		fmt.Fprintf(&r.page, "\n%s%s.\n", strings.ToUpper(r.about[:1]), r.about[1:])
	}
	if len(r.rows) > 0 {
		fmt.Fprintf(&r.page, "\n| key | in the file | meaning |\n|---|---|---|\n%s\n", strings.Join(r.rows, "\n"))
	}
	r.heading, r.about, r.rows = "", "", nil
}

// endProse writes the comments that there are.
func (r *referenceWriter) endProse() {
	if text := strings.TrimSpace(strings.Join(r.prose, "\n")); text != "" {
		fmt.Fprintf(&r.page, "\n%s\n", text)
	}
	r.prose = nil
}

// cell formats a text for a table.
func cell(text string) string {
	if text == "" {
		return "as above"
	}
	return strings.ReplaceAll(text, "|", `\|`)
}
