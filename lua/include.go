package lua

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed *.lua lib/*.lua
var files embed.FS

const (
	includeMark = "--#include " // begins a line that includes a piece
	slowMark    = " --#slow"    // separates the two forms of a line with a fast path
)

// slowPaths is set by the linker in `make slowpaths`, which tests that a fast path decides what the general path decides, only faster.
var slowPaths string

// assembly is a text of scripts and the pieces that they include, each once and after the pieces that it includes itself.
type assembly struct {
	files  fs.FS
	slow   bool // without the fast paths
	pieces []piece
	done   []string
}

// piece is a file of lib, with what it includes left out.
type piece struct{ name, body string }

// text returns a piece as a script begins with it.
func (p piece) text() string { return "local " + p.name + " = (function()\n" + p.body + "end)()\n" }

// text returns the pieces, one after the other.
func (a *assembly) text() string {
	var text strings.Builder
	for _, p := range a.pieces {
		text.WriteString(p.text())
	}
	return text.String()
}

// assemble returns a script with the pieces that it includes, without their functions that it does not use: the argument of EVAL.
//
// A piece is a file of lib that ends with `return NAME`, where NAME is the name of the file. A script or a piece includes another piece by a
// line of its own: `--#include lib/NAME.lua`. Each piece appears once before the script, after the pieces that it includes itself, as a local
// NAME. A missing file, and pieces that include each other in a circle, are errors that name the files.
//
// A line that chooses a fast path ends with a mark and the line that replaces it when all fast paths are off: `CHOICE --#slow LINE`.
func assemble(files fs.FS, name string) (string, error) {
	a := assembly{files: files, slow: slowPaths != ""}
	own, err := a.add(name)
	if err != nil {
		return "", err
	}
	a.pieces = withoutUnused(a.pieces, own)
	return a.text() + own, nil
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
		open = append(open, file)
		defer func() { open = open[:len(open)-1] }()
		var own strings.Builder
		for line := range strings.Lines(string(text)) {
			included, includes := strings.CutPrefix(line, includeMark)
			if !includes {
				own.WriteString(a.chosen(line))
				continue
			}
			included = strings.TrimSuffix(included, "\n")
			if slices.Contains(open, included) {
				return "", fmt.Errorf("script %s: a circle: %s includes %s", name, strings.Join(open, " includes "), included)
			}
			if slices.Contains(a.done, included) {
				continue
			}
			body, err := include(included)
			if err != nil {
				return "", err
			}
			a.done = append(a.done, included)
			a.pieces = append(a.pieces, piece{strings.TrimSuffix(path.Base(included), ".lua"), body})
		}
		return own.String(), nil
	}
	return include(name + ".lua")
}

// chosen returns the wanted form of a line.
func (a *assembly) chosen(line string) string {
	if !a.slow {
		return line
	}
	_, general, hasFastPath := strings.Cut(line, slowMark)
	if !hasFastPath {
		return line
	}
	return strings.TrimLeft(general, " ")
}
