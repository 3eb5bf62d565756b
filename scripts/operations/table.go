package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/tundish-io/tundish/internal/bounds"
)

const (
	boundsPage = "docs/bounds.md"
	tableEnd   = "<!-- end of the generated table -->\n"
)

// table is one of a page, which its head begins.
type table struct {
	head string
	rows func() string
}

// shares is the page of what callers share, with its bounds.
func shares() ([]byte, error) {
	return withTables(boundsPage, table{bounds.Head, bounds.Table})
}

// withTables is a page with its tables made again.
func withTables(page string, tables ...table) ([]byte, error) {
	content, err := os.ReadFile(page) //nolint:gosec // a constant
	if err != nil {
		return nil, err
	}
	text := string(content)
	for _, table := range tables {
		before, rest, began := strings.Cut(text, table.head)
		_, after, ended := strings.Cut(rest, tableEnd)
		if !began || !ended {
			return nil, fmt.Errorf("%s lacks the end of the table %s", page, table.head)
		}
		text = before + table.head + table.rows() + tableEnd + after
	}
	return []byte(text), nil
}

// cell formats a text for a cell of a table.
func cell(text string) string {
	if text == "" {
		return "as above"
	}
	return strings.ReplaceAll(text, "|", `\|`)
}
