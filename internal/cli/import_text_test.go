package cli_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
)

// inUTF16 is what PowerShell's > and Excel's "Unicode Text" write.
func inUTF16(text string) string {
	out := []byte("\xff\xfe")
	for _, unit := range utf16.Encode([]rune(text)) {
		out = binary.LittleEndian.AppendUint16(out, unit)
	}
	return string(out)
}

const mark = "\xef\xbb\xbf"

// Tables as programs save them: what is UTF-8 gets in whole, whatever separates its columns, and nothing is delivered altered.
func TestImportOfTablesAsProgramsSaveThem(t *testing.T) {
	t.Parallel()
	const two = `7 Müller|8 Meier`
	for name, c := range map[string]struct {
		text, jobs string
		exit       int
		says       []string
		rejects    string
	}{
		"Excel, CSV UTF-8":            {mark + "id,name\r\n7,Müller\r\n8,Meier\r\n", two, 0, nil, ""},
		"the same in German":          {mark + "id;name\r\n7;Müller\r\n8;Meier\r\n", two, 0, nil, ""},
		"LibreOffice, quoted":         {"\"id\",\"name\"\n\"7\",\"Müller\"\n\"8\",\"Meier\"\n", two, 0, nil, ""},
		"LibreOffice, tabs":           {"id\tname\n7\tMüller\n8\tMeier", two, 0, nil, ""},
		"pipes and blanks in names":   {" id | name \n7|Müller\n8|Meier\n", two, 0, nil, ""},
		"PowerShell 5, Export-Csv":    {mark + "#TYPE System.Object\r\n\"id\";\"name\"\r\n\"7\";\"Müller\"\r\n\"8\";\"Meier\"\r\n", two, 0, nil, ""},
		"Excel's sep line":            {mark + "sep=;\r\nid;name\r\n7;Müller\r\n8;Meier\r\n", two, 0, nil, ""},
		"Excel for an old Mac, UTF-8": {"id,name\r7,Müller\r8,Meier\r", two, 0, nil, ""},
		"empty rows below":            {"id;name\r\n7;Müller\r\n;\r\n8;Meier\r\n\r\n;\r\n;\r\n", two, 0, nil, ""},
		"Excel, CSV: Latin-1": {
			"id;name\r\n7;M\xfcller\r\n8;Meier\r\n", "8 Meier", 1, nil, `{"line":2,"reason":"line 2 is not UTF-8: save the file as UTF-8"`,
		},
		"Latin-1 in a field of two lines": {
			"id;name\r\n8;Meier\r\n7;\"Herr\r\nM\xfcller\"\r\n", "8 Meier", 1, nil, `{"line":3,"reason":"line 4 is not UTF-8: save the file as UTF-8"`,
		},
		"Latin-1 in a column that no job uses": {"id,name,ort\n8,Meier,Ulm\n7,Huber,K\xf6ln\n", "8 Meier", 1, nil, `{"line":3,"reason":"line 3 is not UTF-8`},
		"Latin-1 in the names":                 {"id,name,stra\xdfe\n8,Meier,x\n", "", 2, []string{"line 1 is not UTF-8: save the file as UTF-8"}, ""},
		"Excel, Unicode Text":                  {inUTF16("id\tname\r\n7\tMüller\r\n"), "", 2, []string{"the file is UTF-16", "save it as UTF-8"}, ""},
		"another column": {
			mark + "Id;Name\r\n7;Müller\r\n", "", 2, []string{`there is no column "id": the first row names "Id", "Name", separated by ";"`}, "",
		},
		"one column twice":  {"id,name,id\n7,Müller,8\n", "", 2, []string{`several columns are named "id"`}, ""},
		"a short row":       {"id;name\n7\n8;Meier\n", "8 Meier", 1, nil, `wrong number of fields: the first row has 2 columns, separated by \";\"`},
		"a bare quote":      {"id,name\n7,a\"b\n8,Meier\n", "8 Meier", 1, nil, `{"line":2,"reason":"parse error on line 2`},
		"nothing but names": {mark + "id,name\r\n", "", 0, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newImporting(t)
			path := i.file(t, "customers.csv", c.text)
			i.run(t, path, "--csv", "--template", `{"payload":{{json (printf "%s %s" .id .name)}}}`).want(t, c.exit, c.says...)
			i.wantJobs(t, c.jobs)
			if text, err := os.ReadFile(path + ".rejects.ndjson"); !strings.Contains(string(text), c.rejects) || (err == nil) != (c.rejects != "") {
				t.Errorf("the rejects are %s, %v; want %s", text, err, c.rejects)
			}
		})
	}
}

// wantJobs compares the payloads of all jobs, which are texts.
func (i *importing) wantJobs(t *testing.T, want string) {
	t.Helper()
	var got []string
	for _, body := range i.redis.HGetAll(t.Context(), stored.Key("crm", "body")).Val() {
		_, payload, _ := strings.Cut(body, "\n")
		got = append(got, strings.Trim(payload, `"`))
	}
	slices.Sort(got)
	must.Equal(t, strings.Join(got, "|"), want, "the jobs are %q", got)
}

// A flag says the separator where the names do not.
func TestImportWithASeparator(t *testing.T) {
	t.Parallel()
	i := newImporting(t)
	path := i.file(t, "one.csv", "name, first;id\nMüller, A;7\n")
	const template = `{"payload":{{json (printf "%s %s" .id (index . "name, first"))}}}`
	i.run(t, path, "--csv", "--template", template, "--separator", "tab").want(t, 2, `there is no column "id"`, "separated by tabs")
	i.run(t, path, "--csv", "--template", template, "--separator", "x").want(t, 2, "want comma, semicolon, tab or pipe")
	i.run(t, path, "--csv", "--template", template, "--separator", "semicolon").want(t, 0)
	i.wantJobs(t, "7 Müller, A")
}

// Lines of jobs as programs save them.
func TestImportOfLinesAsProgramsSaveThem(t *testing.T) {
	t.Parallel()
	const first, second = `{"payload":"Müller"}`, `{"payload":"Meier"}`
	for name, c := range map[string]struct {
		text, jobs string
		exit       int
		says       string
		rejects    string
	}{
		"with a mark":               {mark + first + "\r\n" + second + "\r\n\r\n", "Meier|Müller", 0, "", ""},
		"two files with marks":      {mark + first + "\n" + mark + second, "Meier|Müller", 0, "", ""},
		"of an old Mac":             {first + "\r" + second + "\r", "Meier|Müller", 0, "", ""},
		"PowerShell, >":             {inUTF16(first + "\r\n"), "", 2, "the file is UTF-16", ""},
		"UTF-16 without a mark":     {inUTF16(first)[2:], "", 2, "the file is UTF-16", ""},
		"Latin-1 in the third line": {second + "\n\n{\"payload\":\"M\xfcller\"}\n", "Meier", 1, "", `{"line":3,"reason":"line 3 is not UTF-8: save the file as UTF-8"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newImporting(t)
			path := i.file(t, "jobs.ndjson", c.text)
			i.run(t, path).want(t, c.exit, c.says)
			i.wantJobs(t, c.jobs)
			if text, _ := os.ReadFile(path + ".rejects.ndjson"); !strings.Contains(string(text), c.rejects) {
				t.Errorf("the rejects are %s; want %s", text, c.rejects)
			}
		})
	}
}

// The time that a bucket needs for a file counts requests, not jobs.
func TestImportEstimatesRequests(t *testing.T) {
	t.Parallel()
	i := newImporting(t)
	config := i.file(t, "config.toml", `
[[buckets]]
name = "crm"
rate = "10/s"
dedupe_window = "1s"
[buckets.webhook]
url = "https://example.com/"
[buckets.batch]
max_size = 26
`)
	var text strings.Builder
	for n := range 5200 {
		fmt.Fprintf(&text, "{\"payload\":%d}\n", 1000+n)
	}
	path := i.file(t, "jobs.ndjson", text.String())
	out := runArgs(t.Context(), nil, "", "producer", "import", "crm", path, "--server", i.URL, "--config", config)
	out.want(t, 0, "the bucket needs about 20s for this file at 10/s") // 200 requests, not 5200
}
