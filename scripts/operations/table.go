package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/internal/bounds"
	"github.com/tundish-io/tundish/internal/httpapi"
)

const (
	tablePage  = "docs/http-api.md"
	boundsPage = "docs/guarantees.md"
	tableEnd   = "<!-- end of the generated table -->\n"
)

// table is one of a page, which its head begins.
type table struct {
	head string
	rows func() string
}

// tables are the tables of the operators' page.
var tables = []table{
	{"| setting | of a | is |\n|---|---|---|\n", changeable},
	{"| command | endpoint below `/v1` | role |\n|---|---|---|\n", rows},
}

// page is the page of operators with its tables.
func page() ([]byte, error) { return withTables(tablePage, tables...) }

// guarantees is the page of guarantees with the bounds that callers share.
func guarantees() ([]byte, error) {
	return withTables(boundsPage, table{bounds.Head, bounds.Table})
}

// withTables is a page with its tables made again.
func withTables(page string, tables ...table) ([]byte, error) {
	content, err := os.ReadFile(page) //nolint:gosec // one of two constants
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

// rows returns a row for each command, and for each endpoint without one.
func rows() string {
	type row struct {
		command   string
		endpoints []string
		role      string
	}
	var rows []row
	for _, op := range httpapi.Operations() {
		if !slices.Contains(op.Tags, "operator") {
			continue
		}
		roles := make([]string, len(op.Roles))
		for i, role := range op.Roles {
			roles[i] = string(role)
		}
		endpoint, role := "`"+op.Method+" "+strings.TrimPrefix(op.Path, "/v1")+"`", strings.Join(roles, ", ")
		if len(op.Commands) == 0 {
			rows = append(rows, row{"—", []string{endpoint}, role})
		}
		for _, command := range op.Commands {
			at := slices.IndexFunc(rows, func(r row) bool { return r.command == "`"+command+"`" })
			if at < 0 {
				rows = append(rows, row{"`" + command + "`", []string{endpoint}, role})
				continue
			}
			rows[at].endpoints = append(rows[at].endpoints, endpoint)
		}
	}
	var text strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", r.command, strings.Join(r.endpoints, ", "), r.role)
	}
	return text.String()
}
