// Command circles finds files of a package that call each other in a circle, and exits with 1 if there are any. A reader of one of these files has to
// read them all. It checks functions and methods, not types, constants and tests.
package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// calls holds the functions that a file uses of which other files: file → file → names.
type calls map[string]map[string][]string

func main() {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
	}, "./...")
	if err != nil {
		fmt.Fprintln(os.Stderr, "circles:", err)
		os.Exit(1)
	}
	found := packages.PrintErrors(loaded) > 0
	for _, p := range loaded {
		calls := callsOf(p)
		for _, circle := range calls.circles() {
			found = true
			fmt.Fprintf(os.Stderr, "%s: files call each other in a circle, move a function:\n%s", p.PkgPath, calls.text(circle))
		}
	}
	if found {
		os.Exit(1)
	}
}

func callsOf(p *packages.Package) calls {
	all := calls{}
	for _, syntax := range p.Syntax {
		file := filepath.Base(p.Fset.Position(syntax.Pos()).Filename)
		all[file] = map[string][]string{}
		ast.Inspect(syntax, func(n ast.Node) bool {
			name, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			function, ok := p.TypesInfo.Uses[name].(*types.Func)
			if !ok || function.Pkg() != p.Types {
				return true
			}
			of := filepath.Base(p.Fset.Position(function.Pos()).Filename)
			if of != file && !slices.Contains(all[file][of], function.Name()) {
				all[file][of] = append(all[file][of], function.Name())
			}
			return true
		})
	}
	return all
}

// reaches lists the files that a file leads to.
func (c calls) reaches(file string) map[string]bool {
	seen, next := map[string]bool{}, []string{file}
	for len(next) > 0 {
		from := next[0]
		next = next[1:]
		for to := range c[from] {
			if !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		}
	}
	return seen
}

// circles are the sets of files that all lead to each other.
func (c calls) circles() [][]string {
	var found [][]string
	reach := map[string]map[string]bool{}
	for file := range c {
		reach[file] = c.reaches(file)
	}
	done := map[string]bool{}
	for file := range c {
		if done[file] || !reach[file][file] {
			continue
		}
		var circle []string
		for other := range reach[file] {
			if reach[other][file] {
				circle, done[other] = append(circle, other), true
			}
		}
		slices.Sort(circle)
		found = append(found, circle)
	}
	return found
}

// text lists the calls within a circle.
func (c calls) text(circle []string) string {
	var lines strings.Builder
	for _, from := range circle {
		for _, to := range circle {
			if names := c[from][to]; len(names) > 0 {
				fmt.Fprintf(&lines, "  %s calls %s of %s\n", from, strings.Join(names, ", "), to)
			}
		}
	}
	return lines.String()
}
