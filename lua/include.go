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

var includeLine = regexp.MustCompile(`(?m)^--#include (\S+)\n`)

// parts are a script and what it includes.
type parts struct{ pieces, own string }

// script is what EVAL is given.
func (p parts) script() string { return p.pieces + p.own }

// library is what FUNCTION LOAD is given. It makes the pieces when it is loaded. So none of them may keep anything from
// one run for the next. While a piece is made there are no KEYS, no ARGV, and no libraries of Lua.
func (p parts) library(function string) string {
	return fmt.Sprintf("#!lua name=%[1]s\nlocal KEYS, ARGV\n%[2]sredis.register_function('%[1]s', function(keys, args)\nKEYS, ARGV = keys, args\n%[3]send)\n",
		function, p.pieces, p.own)
}

// assemble returns a script with the pieces that it includes.
//
// A piece is a file of lib that ends with `return NAME`, where NAME is the name of the file. A script
// and a piece include another piece by a line of its own: `--#include lib/NAME.lua`. Each piece stands once in front
// of the script, behind the pieces that it includes itself, as a local NAME. A file that is missing, and pieces that
// include each other in a circle, are errors that name the files.
func assemble(files fs.FS, name string) (parts, error) {
	var pieces strings.Builder
	var done, open []string
	var include func(file string) (string, error)
	include = func(file string) (string, error) {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return "", fmt.Errorf("script %s: %s: %w", name, strings.Join(append(open, file), " includes "), err)
		}
		open = append(open, file)
		defer func() { open = open[:len(open)-1] }()
		for _, match := range includeLine.FindAllSubmatch(text, -1) {
			piece := string(match[1])
			if slices.Contains(open, piece) {
				return "", fmt.Errorf("script %s: a circle: %s includes %s", name, strings.Join(open, " includes "), piece)
			}
			if slices.Contains(done, piece) {
				continue
			}
			own, err := include(piece)
			if err != nil {
				return "", err
			}
			done = append(done, piece)
			fmt.Fprintf(&pieces, "local %s = (function()\n%send)()\n", strings.TrimSuffix(path.Base(piece), ".lua"), own)
		}
		return includeLine.ReplaceAllString(string(text), ""), nil
	}
	own, err := include(name + ".lua")
	if err != nil {
		return parts{}, err
	}
	return parts{pieces: pieces.String(), own: own}, nil
}
