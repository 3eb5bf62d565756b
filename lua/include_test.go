package lua

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func TestAssemble(t *testing.T) {
	t.Parallel()
	dir := func(files map[string]string) fs.FS {
		m := fstest.MapFS{}
		for name, text := range files {
			m[name] = &fstest.MapFile{Data: []byte(text)}
		}
		return m
	}
	for name, test := range map[string]struct {
		files      map[string]string
		want, says string
	}{
		"nothing included": {files: map[string]string{"s.lua": "return 1\n"}, want: "return 1\n"},
		"a piece and its piece, each once": {
			files: map[string]string{
				"s.lua":     "-- s.lua\n\n--#include lib/b.lua\n--#include lib/a.lua\n\nreturn b\n",
				"lib/a.lua": "local a = 1\nreturn a\n",
				"lib/b.lua": "--#include lib/a.lua\nlocal b = a\nreturn b\n",
			},
			want: "local a = (function()\nlocal a = 1\nreturn a\nend)()\nlocal b = (function()\nlocal b = a\nreturn b\nend)()\n-- s.lua\n\n\nreturn b\n",
		},
		"a missing script": {says: "s.lua: open s.lua"},
		"a missing piece": {
			files: map[string]string{"s.lua": "--#include lib/a.lua\n"},
			says:  "s.lua includes lib/a.lua",
		},
		"a circle": {
			files: map[string]string{
				"s.lua": "--#include lib/a.lua\n", "lib/a.lua": "--#include lib/b.lua\n", "lib/b.lua": "--#include lib/a.lua\n",
			},
			says: "a circle: s.lua includes lib/a.lua includes lib/b.lua includes lib/a.lua",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := assemble(dir(test.files), "s")
			if got != test.want || (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("assembled %q, %v", got, err)
			}
		})
	}
}

// TestSlowPaths: without the fast paths, each line that chooses one is replaced, and nothing else. `make slowpaths` relies on that.
func TestSlowPaths(t *testing.T) {
	t.Parallel()
	instead := map[string][]string{}
	for _, script := range []string{"claim", "settle"} {
		with, without := assembly{files: files}, assembly{files: files, slow: true}
		own, err := with.add(script)
		ownWithout, errWithout := without.add(script)
		if err != nil || errWithout != nil {
			t.Fatal(err, errWithout)
		}
		lines := strings.Split(with.text()+own, "\n")
		others := strings.Split(without.text()+ownWithout, "\n")
		if len(lines) != len(others) {
			t.Fatalf("%s has %d lines, and %d without the fast paths", script, len(lines), len(others))
		}
		for i, line := range lines {
			if line != others[i] {
				instead[script] = append(instead[script], others[i])
			}
		}
		if strings.Contains(ownWithout, "--#slow") {
			t.Errorf("%s has a mark that was not obeyed", script)
		}
	}
	if got, want := fmt.Sprintf("%q", instead), `map["claim":["do return nil end" ""] "settle":["" "local usual = ''"]]`; got != want {
		t.Errorf("instead of fast paths there is %s, want %s", got, want)
	}
	if on := slowPaths != ""; strings.Contains(Claim.Text(), "--#slow") == on || strings.Contains(Library(), "--#slow") == on {
		t.Errorf("the linker switched the fast paths off: %t, and the scripts have %d of their marks", on, strings.Count(Library(), "--#slow"))
	}
}

// Every piece is used, and a script names no piece that it does not include.
func TestPieces(t *testing.T) {
	t.Parallel()
	pieces, err := fs.Glob(files, "lib/*.lua")
	if err != nil || len(pieces) == 0 {
		t.Fatal(pieces, err)
	}
	for _, piece := range pieces {
		name := strings.TrimSuffix(strings.TrimPrefix(piece, "lib/"), ".lua")
		text, err := fs.ReadFile(files, piece)
		if err != nil || !strings.HasSuffix(string(text), "\nreturn "+name+"\n") || !strings.HasPrefix(string(text), "-- "+name+".lua: ") {
			t.Errorf("%s does not begin with its name or does not end with what it returns: %v", piece, err)
		}
		used, names := false, regexp.MustCompile(`(?m)^[^'-]*(?:^|[^.\w'])`+name+`\.`)
		for _, script := range All() {
			includes := strings.Contains(script.Text(), "local "+name+" = (function()\n")
			used = used || includes
			if !includes && strings.Contains(script.Text(), name+".") && names.MatchString(script.Text()) {
				t.Errorf("%s uses %s and does not include it: %q", script.Name(), piece, names.FindString(script.Text()))
			}
		}
		if !used {
			t.Errorf("no script includes %s", piece)
		}
	}
}
