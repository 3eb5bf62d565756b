package cli

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/tundish-io/tundish/internal/inputtext"
)

// maxRow bounds a row of a table: CSV writes a quotation mark twice.
const maxRow = 2 * maxLine

var errLongRow = fmt.Errorf("is longer than %d bytes: is a quotation mark missing at the end of a field?", maxRow)

// rowReader ends a row that is longer than maxRow: the reader of package csv keeps rows of any length in memory.
type rowReader struct {
	io.Reader
	left int // bytes of this row
}

func (r *rowReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errLongRow
	}
	n, err := r.Reader.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// importTable is a file of CSV whose first row names the columns.
type importTable struct {
	rows    *csv.Reader
	bounded *rowReader
	before  int64    // lines above the row of names
	names   []string // of the columns: "" of a column that is not used
	twice   []string // names of several columns
	job     *template.Template
}

// rows makes a job of each row of a table.
func (s *jobSource) rows(flags importFlags) error {
	made, err := template.New("job").Option("missingkey=error").Funcs(template.FuncMap{
		"json": func(v string) (string, error) {
			text, err := json.Marshal(v)
			return string(text), err
		},
		"path": url.PathEscape,
	}).Parse(flags.template)
	if err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	t, err := newImportTable(s.read, flags.separator)
	if err != nil {
		return err
	}
	t.job = made
	sample := map[string]string{}
	for _, name := range t.names {
		sample[name] = name
	}
	if err := made.Execute(io.Discard, sample); err != nil {
		if explained := t.noColumn(err); explained != nil {
			return fmt.Errorf("--template: %w", explained)
		}
	}
	s.next = func() (raw, job []byte, err error) { return t.next(s) }
	return nil
}

// separatorNames are the names of separators for --separator, which are easier to type in a shell.
var separatorNames = map[string]rune{",": ',', "comma": ',', ";": ';', "semicolon": ';', "\t": '\t', `\t`: '\t', "tab": '\t', "|": '|', "pipe": '|'}

// newImportTable reads the row of names. separator is the flag, "" to find it from that row.
func newImportTable(file io.Reader, separator string) (*importTable, error) {
	const most = 64 << 10 // of the first row: where the separator is searched
	text := bufio.NewReaderSize(inputtext.NewTableReader(file), most)
	head, err := text.Peek(most)
	if errors.Is(err, inputtext.ErrUTF16) {
		return nil, fmt.Errorf("the file %w", err)
	}
	t := &importTable{bounded: &rowReader{Reader: text, left: maxRow}}
	found, line := inputtext.Separator(head)
	if line > 0 {
		t.before = 1
		if _, err := text.Discard(line); err != nil {
			return nil, fmt.Errorf("the first row: %w", err)
		}
	}
	if separator != "" {
		found = separatorNames[separator]
	}
	t.rows = csv.NewReader(t.bounded)
	t.rows.ReuseRecord, t.rows.Comma = true, found
	first, err := t.rows.Read()
	if err != nil {
		return nil, fmt.Errorf("the first row, which names the columns: %w", err)
	}
	for _, name := range first {
		if err := inputtext.Check([]byte(name), t.before+1); err != nil {
			return nil, err //nolint:wrapcheck // it names the line
		}
		name = strings.TrimSpace(name)
		if at := slices.Index(t.names, name); at >= 0 && name != "" {
			t.twice, t.names[at] = append(t.twice, name), ""
		}
		if slices.Contains(t.twice, name) {
			name = ""
		}
		t.names = append(t.names, name)
	}
	return t, nil
}

// next returns the next row as JSON, and the job that the template makes of it.
func (t *importTable) next(s *jobSource) (raw, job []byte, err error) {
	for {
		t.bounded.left = maxRow
		row, err := t.rows.Read()
		if parse, ofRow := errors.AsType[*csv.ParseError](err); ofRow {
			s.at = t.before + int64(parse.StartLine)
			return nil, nil, rowError{t.badRow(parse)}
		}
		if errors.Is(err, errLongRow) {
			return nil, nil, fmt.Errorf("row %d: %w", s.line+1, err)
		}
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // io.EOF is compared as it is
		}
		if len(row) > 1 && !slices.ContainsFunc(row, func(field string) bool { return field != "" }) {
			s.line++ // spreadsheets write separators for each empty row below a table
			continue
		}
		return t.jobOf(s, row)
	}
}

func (t *importTable) jobOf(s *jobSource, row []string) (raw, job []byte, err error) {
	line, _ := t.rows.FieldPos(0)
	s.at = t.before + int64(line)
	columns := make(map[string]string, len(t.names))
	for i, name := range t.names {
		at, _ := t.rows.FieldPos(i)
		err = errors.Join(err, inputtext.Check([]byte(row[i]), t.before+int64(at)))
		if name != "" {
			columns[name] = row[i]
		}
	}
	raw, _ = json.Marshal(columns) // texts always marshal
	if first, ok := errors.AsType[*inputtext.NotUTF8Error](err); ok {
		return raw, nil, rowError{first}
	}
	var out bytes.Buffer
	if err := t.job.Execute(&out, columns); err != nil {
		if explained := t.noColumn(err); explained != nil {
			err = explained
		}
		return raw, nil, rowError{err}
	}
	return raw, out.Bytes(), nil
}

// badRow explains a row that cannot be read.
func (t *importTable) badRow(err *csv.ParseError) error {
	fault := *err
	fault.StartLine, fault.Line = fault.StartLine+int(t.before), fault.Line+int(t.before)
	if errors.Is(err, csv.ErrFieldCount) {
		return fmt.Errorf("%w: the first row has %d columns, separated by %s", &fault, len(t.names), t.separator())
	}
	return &fault
}

var missingColumn = regexp.MustCompile(`map has no entry for key "(.*)"$`)

// noColumn explains an error of a template that names a column which is not there; nil of another error.
func (t *importTable) noColumn(err error) error {
	match := missingColumn.FindStringSubmatch(err.Error())
	if match == nil {
		return nil
	}
	if slices.Contains(t.twice, match[1]) {
		return fmt.Errorf("several columns are named %q: rename all but one", match[1])
	}
	var known []string
	for _, name := range t.names {
		if name != "" {
			known = append(known, fmt.Sprintf("%q", name))
		}
	}
	return fmt.Errorf("there is no column %q: the first row names %s, separated by %s (--separator says another separator)",
		match[1], strings.Join(known, ", "), t.separator())
}

func (t *importTable) separator() string {
	if t.rows.Comma == '\t' {
		return "tabs"
	}
	return fmt.Sprintf("%q", string(t.rows.Comma))
}
