package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tundish-io/tundish/internal/config"
)

const referencePage = "docs/reference.md"

const referenceHead = `# Configuration reference

Every key, with its default. This page is made from ` + "`dispatcher config reference`" + `, which prints the same as a file.
`

var (
	tableLine = regexp.MustCompile(`^#?(\[\[?[a-z._]+\]\]?)\s*(?:#\s*(.*))?$`)
	keyLine   = regexp.MustCompile(`^#?([a-z][a-z0-9_.]*) = (.*?)(?:\s+#\s(.*))?$`)
	moreLine  = regexp.MustCompile(`^\s+#\s(.*)$`)
	proseLine = regexp.MustCompile(`^#(?:\s(.*))?$`)
)

// reference is the page of all keys: a table of keys below each table of the file, and the comments between them as text.
func reference() ([]byte, error) {
	page := &strings.Builder{}
	page.WriteString(referenceHead)
	var prose, rows []string
	heading, about := "", ""
	flush := func() {
		if heading != "" {
			fmt.Fprintf(page, "\n## `%s`\n", heading)
		}
		if about != "" {
			fmt.Fprintf(page, "\n%s%s.\n", strings.ToUpper(about[:1]), about[1:])
		}
		heading, about = "", ""
		if len(rows) > 0 {
			fmt.Fprintf(page, "\n| key | in the file | meaning |\n|---|---|---|\n%s\n", strings.Join(rows, "\n"))
		}
		rows = nil
	}
	say := func() {
		if text := strings.TrimSpace(strings.Join(prose, "\n")); text != "" {
			fmt.Fprintf(page, "\n%s\n", text)
		}
		prose = nil
	}
	for number, line := range strings.Split(config.Reference, "\n") {
		if number == 0 { // the title
			continue
		}
		switch {
		case strings.TrimSpace(line) == "":
			flush()
			say()
		case tableLine.MatchString(line):
			flush()
			m := tableLine.FindStringSubmatch(line)
			heading, about = m[1], m[2]
			if len(prose) > 0 { // what stands above a table is about it
				fmt.Fprintf(page, "\n## `%s`\n", heading)
				heading = ""
				say()
			}
		case keyLine.MatchString(line):
			say()
			m := keyLine.FindStringSubmatch(line)
			rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |", m[1], strings.ReplaceAll(m[2], "|", `\|`), cell(m[3])))
		case moreLine.MatchString(line) && len(rows) > 0:
			last := strings.TrimSuffix(rows[len(rows)-1], " |")
			rows[len(rows)-1] = last + ". " + cell(moreLine.FindStringSubmatch(line)[1]) + " |"
		case proseLine.MatchString(line):
			if len(rows) > 0 {
				flush()
			}
			prose = append(prose, strings.TrimPrefix(proseLine.FindStringSubmatch(line)[1], "!!! "))
		default:
			return nil, fmt.Errorf("internal/config/reference.toml:%d: is neither a table, a key with a comment, nor a comment: %s", number+1, line)
		}
	}
	flush()
	say()
	return []byte(page.String()), nil
}

// cell is a text as it stands in a table.
func cell(text string) string {
	if text == "" {
		return "as above"
	}
	return strings.ReplaceAll(text, "|", `\|`)
}
