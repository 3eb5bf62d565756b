// Package source_test holds rules on the source and on what is deployed that no linter has.
package source_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// No error is wrapped that may be nil: `if err != nil || n != want { … %w … err … }` prints
// "%!w(<nil>)" where only the second condition holds.
func TestNoNilIsWrapped(t *testing.T) {
	t.Parallel()
	files := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && !strings.HasPrefix(entry.Name(), ".."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, call := range nilWraps(file) {
			t.Errorf("%s: the error may be nil where %%w wraps it: decide the two conditions apart", set.Position(call.Pos()))
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("read %d files: %v", files, err)
	}
}

// The rule finds what it has to, and only that.
func TestNilWraps(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`if err != nil || n != 1 { return fmt.Errorf("x: %w", err) }`:                               1,
		`if n != 1 || r.Err() != nil { return fmt.Errorf("x %d (%w)", n, r.Err()) }`:                1,
		`switch { case n != 1 || (err != nil): return fail(2, "x: %w", err) }`:                      1,
		`if err != nil { return fmt.Errorf("x: %w", err) }`:                                         0,
		`if err != nil && n != 1 { return fmt.Errorf("x: %w", err) }`:                               0,
		`if err != nil || n != 1 { return fmt.Errorf("x: %v of %w", err, errOther) }`:               0,
		`if err != nil || n != 1 { if err != nil { return fmt.Errorf("x: %w", err) }; return nil }`: 0,
	} {
		file := must.Get(parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() error {\n"+body+"\nreturn nil }", parser.SkipObjectResolution))(t)
		must.Equal(t, len(nilWraps(file)), want, "%s: found", body)
	}
}

// nilWraps returns the calls that wrap an error of which their condition says that it may be nil.
func nilWraps(file *ast.File) (calls []*ast.CallExpr) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			calls = append(calls, wrapsOf(mayBeNil(n.Cond), n.Body.List)...)
		case *ast.CaseClause:
			for _, cond := range n.List {
				calls = append(calls, wrapsOf(mayBeNil(cond), n.Body)...)
			}
		}
		return true
	})
	return calls
}

// mayBeNil returns the X of each `X != nil` that a condition joins to another by ||.
func mayBeNil(cond ast.Expr) (names []string) {
	either, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	if !ok || either.Op != token.LOR {
		return nil
	}
	for _, side := range []ast.Expr{either.X, either.Y} {
		names = append(append(names, mayBeNil(side)...), notNil(side)...)
	}
	return names
}

// notNil returns X where the condition is `X != nil`.
func notNil(cond ast.Expr) []string {
	differs, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	if ok && differs.Op == token.NEQ && types.ExprString(differs.Y) == "nil" {
		return []string{types.ExprString(differs.X)}
	}
	return nil
}

// wrapsOf returns the calls in a body whose %w stands for one of the names. Where an inner `if`
// asks again, the name is known there.
func wrapsOf(names []string, body []ast.Stmt) (calls []*ast.CallExpr) {
	for _, stmt := range body {
		ast.Inspect(stmt, func(n ast.Node) bool {
			if inner, ok := n.(*ast.IfStmt); ok && slices.ContainsFunc(notNil(inner.Cond), func(name string) bool { return slices.Contains(names, name) }) {
				return false
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for i, arg := range call.Args {
				format, ok := arg.(*ast.BasicLit)
				if !ok || !strings.Contains(format.Value, "%w") {
					continue
				}
				for nth, verb := range verbs(format.Value) {
					if at := i + 1 + nth; verb == 'w' && at < len(call.Args) && slices.Contains(names, types.ExprString(call.Args[at])) {
						calls = append(calls, call)
					}
				}
			}
			return true
		})
	}
	return calls
}

// verbs are those of a format, in order.
func verbs(format string) (list []byte) {
	format = strings.ReplaceAll(format, "%%", "")
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		for i++; i < len(format) && strings.IndexByte("+-# 0123456789.", format[i]) >= 0; i++ {
		}
		if i < len(format) {
			list = append(list, format[i])
		}
	}
	return list
}
