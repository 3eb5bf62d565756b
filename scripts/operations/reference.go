package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tundish-io/tundish/internal/config"
)

const (
	referencePage = "docs/configuration-reference.md"
	referenceHead = `# Configuration reference

<!-- made by go run ./scripts/operations -->

Every key with its default, range and meaning, as a list for each table. ` + "`dispatcher config reference`" + ` prints the same as a file. [Configuration](configuration.md) has the kinds of
values, where values come from, and what a reload changes.
`
)

var (
	tableLine = regexp.MustCompile(`^#?(\[\[?[a-z._]+\]\]?)\s*(?:#\s*(.*))?$`)
	keyLine   = regexp.MustCompile(`^#?([a-z][a-z0-9_.]*) = (.*?)(?:\s+#\s(.*))?$`)
	moreLine  = regexp.MustCompile(`^\s+#\s(.*)$`)
	proseLine = regexp.MustCompile(`^#(?:\s(.*))?$`)
)

// otherDefault is a default that a comment gives, where the file has an example.
var otherDefault = regexp.MustCompile(`(?:^|[;.,] )?default: ("[^"]*"|\[\]|\d+|the limit's number|\{\})[;.,:]? ?`)

// reference returns the page with every key: the content of internal/config/reference.toml, as a table of keys for each table of the file, and the
// comments between them as text. What its first comment and its warnings say is for readers of that file.
func reference() ([]byte, error) {
	r := &referenceWriter{}
	_, content, found := strings.Cut(config.Reference, "\n\n")
	if !found {
		return nil, errors.New("internal/config/reference.toml: has no comment of its own")
	}
	for number, line := range strings.Split(content, "\n") {
		if !strings.HasPrefix(line, "# !!!") && !r.line(line) {
			return nil, fmt.Errorf("internal/config/reference.toml: line %d behind its comment is neither a table, a key, nor a comment: %s", number+1, line)
		}
	}
	r.endTable()
	r.endProse()
	return []byte(referenceHead + r.page.String()), nil
}

// referenceWriter turns a commented file into text, line by line.
type referenceWriter struct {
	page    strings.Builder
	prose   []string // that is not written yet
	heading string   // of the rows
	about   string   // the text below the heading
	rows    []string // of keys that are not written yet
	same    string   // the comment of the last key, if it refers to another table
	buckets int      // tables of buckets: all have the keys of the first one
	skips   bool     // the keys that follow
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
		if table[1] == "[[buckets]]" {
			if r.buckets++; r.buckets > 1 {
				r.skips = true // an example of the table below it
				return true
			}
		}
		r.skips = false
		r.heading, r.about = table[1], table[2]
		if len(r.prose) > 0 { // text above a table is about the table
			fmt.Fprintf(&r.page, "\n## `%s`\n", r.heading)
			r.heading = ""
			r.endProse()
		}
	case (key != nil || more != nil) && r.skips:
	case key != nil:
		r.endProse()
		r.add(key[1], key[2], key[3])
	case more != nil && len(r.rows) > 0:
		last := &r.rows[len(r.rows)-1]
		*last = strings.TrimSuffix(*last, ".") + ". " + more[1]
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
		fmt.Fprintf(&r.page, "\n## `%s`\n", r.heading)
	}
	if r.about != "" {
		fmt.Fprintf(&r.page, "\n%s%s.\n", strings.ToUpper(r.about[:1]), r.about[1:])
	}
	if len(r.rows) > 0 {
		fmt.Fprintf(&r.page, "\n- %s\n", strings.Join(r.rows, "\n- "))
	}
	r.heading, r.about, r.rows, r.same = "", "", nil, ""
}

// endProse writes the comments that there are.
func (r *referenceWriter) endProse() {
	if text := strings.TrimSpace(strings.Join(r.prose, "\n")); text != "" {
		fmt.Fprintf(&r.page, "\n%s\n", text)
	}
	r.prose = nil
}

// add adds the row of a key. Where the file has an example, its comment has the default. Keys that follow each other and have the comment "as of
// TABLE" share a row.
func (r *referenceWriter) add(key, value, comment string) {
	if r.same != "" && comment == r.same {
		last := &r.rows[len(r.rows)-1]
		*last = strings.TrimSuffix(*last, ": "+comment) + ", `" + key + "`: " + comment
		return
	}
	r.same = ""
	if strings.HasPrefix(comment, "as of ") && !strings.ContainsAny(comment, ",;.") || comment == "the same" {
		r.same = comment
		r.rows = append(r.rows, "`"+key+"`: "+comment)
		return
	}
	row, example := "`"+key+" = "+value+"`", ""
	if other := otherDefault.FindStringSubmatch(comment); other != nil {
		row, example = "`"+key+" = "+other[1]+"`", value
		comment = strings.TrimSpace(strings.Replace(comment, other[0], "", 1))
	} else if rest, is := strings.CutPrefix(comment, "required"); is {
		row, example, comment = "`"+key+"` (required)", value, strings.TrimLeft(rest, ";:,. ")
	}
	if comment == "" {
		comment = "as above"
	}
	if row += ": " + comment; example != "" && example != `""` {
		row = strings.TrimSuffix(row, ".") + ", such as `" + example + "`"
	}
	r.rows = append(r.rows, row)
}
