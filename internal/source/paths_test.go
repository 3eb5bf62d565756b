package source_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// named finds the names of files of this project in a text.
var named = regexp.MustCompile(`[\w.*/-]*\w\.(?:go|lua|md|yaml|acl)\b`)

// comments are the lines of a file that may name others: all of ARCHITECTURE.md, else its comments.
func comments(path, text string) []string {
	mark, known := map[string]string{".go": "//", ".lua": "--", ".md": ""}[filepath.Ext(path)]
	if !known {
		mark = "#"
	}
	var lines []string
	for line := range strings.Lines(text) {
		code, comment, found := strings.Cut(line, mark)
		if found && !strings.Contains(comment, "://") && !strings.HasSuffix(code, ":") { // no address
			lines = append(lines, comment)
		}
	}
	return lines
}

// missing are the files that a text names and the project does not have: by their path, the end of their path, or their name.
func missing(text string, files map[string]bool) (names []string) {
	for _, name := range named.FindAllString(text, -1) {
		name = strings.TrimLeft(name, "./")
		if !files[name] && !strings.Contains(name, "*") && name != "lib/NAME.lua" { // one of several
			names = append(names, name)
		}
	}
	return names
}

// A file that a comment, a script or ARCHITECTURE.md names exists.
func TestNamedFilesExist(t *testing.T) {
	t.Parallel()
	files, texts := map[string]bool{}, map[string][]string{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, "../../")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (rel == "bin" || entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && !strings.HasPrefix(entry.Name(), "..")):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		for end := rel; ; {
			files[end], files[strings.TrimLeft(end, ".")] = true, true
			_, rest, more := strings.Cut(end, "/")
			if !more {
				break
			}
			end = rest
		}
		inScripts := strings.HasPrefix(rel, "scripts/") && filepath.Ext(rel) == ""
		if ext := filepath.Ext(rel); ext == ".go" || ext == ".lua" || inScripts || rel == "ARCHITECTURE.md" || rel == "Makefile" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts[rel] = comments(rel, string(text))
		}
		return nil
	})
	if err != nil || len(texts) < 300 {
		t.Fatalf("read %d files: %v", len(texts), err)
	}
	for path, lines := range texts {
		for _, line := range lines {
			for _, name := range missing(line, files) {
				t.Errorf("%s names %s, and there is no such file: %s", path, name, strings.TrimSpace(line))
			}
		}
	}
}

// The rule finds what it has to, and only that.
func TestMissing(t *testing.T) {
	t.Parallel()
	files := map[string]bool{"lua/lib/pacer.lua": true, "lib/pacer.lua": true, "pacer.lua": true}
	for text, want := range map[string]string{
		"see lua/lib/pacer.lua.": "", "(see ../lib/pacer.lua)": "", "as pacer.lua says": "", "see lua/pacer.lua": "lua/pacer.lua", "as pace.lua says": "pace.lua",
		"`a.go`, `pacer.lua`": "a.go", "all *_x.go": "", "1.5 s, e.g. this": "", "example.com/x.lua2": "",
	} {
		must.Equal(t, strings.Join(missing(text, files), " "), want, "%q", text)
	}
	for path, want := range map[string]int{"a.go": 1, "a.lua": 1, "Makefile": 1, "a.md": 4} {
		must.Equal(t, len(comments(path, "x // see a\ny -- see b\nz # c\n// https://example.com/a.md\nw\n")), want, "%s: comments", path)
	}
}
