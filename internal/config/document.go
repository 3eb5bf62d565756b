package config

import (
	"bytes"
	"errors"
	"sort"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// document is a TOML file: its values, and the line of each key.
type document struct {
	file   string
	values map[string]any
	lines  map[string]int // by path
}

// parseDocument reads TOML. It returns a fault if the syntax is wrong.
func parseDocument(file string, data []byte) (document, *Fault) {
	doc := document{file: file, lines: map[string]int{}}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if err := toml.Unmarshal(data, &doc.values); err != nil {
		doc.values = nil
		return doc, syntaxFault(file, data, err)
	}
	x := indexer{lines: doc.lines, elements: map[string]int{}}
	for i, c := range data {
		if c == '\n' {
			x.newlines = append(x.newlines, i)
		}
	}
	x.index(data)
	return doc, nil
}

// line returns the line of the path, or of the nearest table around it, or 0.
func (d document) line(path string) int {
	for path != "" {
		if line, ok := d.lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0
}

// indexer walks the syntax tree and records the line of every key.
type indexer struct {
	lines    map[string]int
	newlines []int          // offsets
	elements map[string]int // arrays of tables: how many there are so far
}

func (x *indexer) index(data []byte) {
	var parser unstable.Parser
	parser.Reset(data)
	table := ""
	for parser.NextExpression() {
		switch node := parser.Expression(); node.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = x.enter(node)
		case unstable.KeyValue:
			x.keyValue(node, table)
		}
	}
}

// enter returns the path of the table that a header opens.
func (x *indexer) enter(header *unstable.Node) string {
	path := ""
	for parts := header.Key(); parts.Next(); {
		path = join(path, string(parts.Node().Data))
		if header.Kind == unstable.ArrayTable && parts.IsLast() {
			x.note(path, parts.Node())
			x.elements[path]++
		}
		if n := x.elements[path]; n > 0 {
			path = at(path).element(n-1, "").path
		}
		x.note(path, parts.Node())
	}
	return path
}

func (x *indexer) keyValue(node *unstable.Node, path string) {
	for parts := node.Key(); parts.Next(); {
		path = join(path, string(parts.Node().Data))
		x.note(path, parts.Node())
	}
	x.value(node.Value(), path)
}

func (x *indexer) value(node *unstable.Node, path string) {
	children, i := node.Children(), 0
	for children.Next() {
		child := children.Node()
		switch {
		case child.Kind == unstable.KeyValue:
			x.keyValue(child, path)
		case child.Kind != unstable.Comment && node.Kind == unstable.Array:
			element := at(path).element(i, "").path
			i++
			if child.Raw.Length > 0 {
				x.note(element, child)
			}
			x.value(child, element)
		}
	}
}

// note keeps the first line of a path.
func (x *indexer) note(path string, node *unstable.Node) {
	if _, ok := x.lines[path]; !ok {
		x.lines[path] = sort.SearchInts(x.newlines, int(node.Raw.Offset)) + 1
	}
}

func syntaxFault(file string, data []byte, err error) *Fault {
	fault := &Fault{File: file, Reason: strings.TrimPrefix(err.Error(), "toml: ")}
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		fault.Line, fault.Column = decode.Position()
		fault.Reason += excerpt(data, fault.Line, fault.Column)
	}
	return fault
}

// excerpt shows the line with a mark under the column, unless it is long,
// not printable, or may hold a secret.
func excerpt(data []byte, line, column int) string {
	lines := strings.Split(string(data), "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	text := strings.ReplaceAll(strings.TrimSuffix(lines[line-1], "\r"), "\t", " ")
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(text) > 120 || column < 1 || column > len(text)+1 || strings.ContainsFunc(text, unprintable) {
		return ""
	}
	lower := strings.ToLower(text)
	if !strings.ContainsAny(text, "=[") { // the middle of a longer string, perhaps
		return ""
	}
	for _, word := range []string{"pass", "secret", "key", "sha256", "token", "url", "://"} {
		if strings.Contains(lower, word) {
			return ""
		}
	}
	return "\n    " + text + "\n    " + strings.Repeat(" ", len([]rune(text[:column-1]))) + "^"
}
