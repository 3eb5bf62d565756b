package lua

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed *.lua lib/*.lua
var files embed.FS

var (
	includeLine = regexp.MustCompile(`(?m)^--#include (\S+)\n`)
	slowLine    = regexp.MustCompile(`(?m)^.* --#slow *(.*)$`)
)

// slowPaths is set by the linker in `make slowpaths`, which tests that a fast path decides what the general path decides, only faster.
var slowPaths string

// assembly is scripts, and the pieces that they include, each once and behind those that it includes itself.
type assembly struct {
	files  fs.FS
	slow   bool // without the fast paths
	pieces strings.Builder
	done   []string
}

// assemble returns a script with the pieces that it includes: what EVAL is given.
//
// A piece is a file of lib that ends with `return NAME`, where NAME is the name of the file. A script
// and a piece include another piece by a line of its own: `--#include lib/NAME.lua`. Each piece stands once in front
// of the script, behind the pieces that it includes itself, as a local NAME. A file that is missing, and pieces that
// include each other in a circle, are errors that name the files.
//
// A line that chooses a fast path ends with a mark and with the line that stands there when all fast paths are off: `CHOICE --#slow LINE`.
func assemble(files fs.FS, name string) (string, error) {
	a := assembly{files: files, slow: slowPaths != ""}
	own, err := a.add(name)
	if err != nil {
		return "", err
	}
	return a.pieces.String() + own, nil
}

// add returns a script without the pieces that it includes, and adds these to the assembly.
func (a *assembly) add(name string) (string, error) {
	var open []string
	var include func(file string) (string, error)
	include = func(file string) (string, error) {
		text, err := fs.ReadFile(a.files, file)
		if err != nil {
			return "", fmt.Errorf("script %s: %s: %w", name, strings.Join(append(open, file), " includes "), err)
		}
		if a.slow {
			text = slowLine.ReplaceAll(text, []byte("$1"))
		}
		open = append(open, file)
		defer func() { open = open[:len(open)-1] }()
		for _, match := range includeLine.FindAllSubmatch(text, -1) {
			piece := string(match[1])
			if slices.Contains(open, piece) {
				return "", fmt.Errorf("script %s: a circle: %s includes %s", name, strings.Join(open, " includes "), piece)
			}
			if slices.Contains(a.done, piece) {
				continue
			}
			own, err := include(piece)
			if err != nil {
				return "", err
			}
			a.done = append(a.done, piece)
			fmt.Fprintf(&a.pieces, "local %s = (function()\n%send)()\n", strings.TrimSuffix(path.Base(piece), ".lua"), own)
		}
		return includeLine.ReplaceAllString(string(text), ""), nil
	}
	return include(name + ".lua")
}
