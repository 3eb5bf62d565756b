package source_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// What a program links that imports the root package alone: neither what reads files, nor what is for tests.
func TestRootPackageLinksLittle(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	list.Dir = "../.."
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for dep := range strings.Lines(string(out)) {
		for _, no := range []string{"github.com/spf13/", "github.com/alicebob/miniredis", "testing\n", "github.com/hibiken/asynq", "/internal/httpapi", "/internal/config"} {
			if strings.HasPrefix(dep, no) || strings.Contains(dep, no) && strings.HasPrefix(no, "/") {
				t.Errorf("the root package links %s", dep)
			}
		}
	}
}

// Each exported name of the packages that a program meets first is used by an example, which a stranger can copy: it imports nothing internal.
func TestExportedNamesHaveExamples(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"tundish", "tundishfile", "tundishtest"} {
		dir := "../.."
		if pkg != "tundish" {
			dir = filepath.Join(dir, pkg)
		}
		var files []*ast.File
		var examples strings.Builder
		set := token.NewFileSet()
		names, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			text := must.Get(os.ReadFile(name))(t)
			if !strings.HasSuffix(name, "_test.go") {
				file := must.Get(parser.ParseFile(set, name, text, parser.ParseComments))(t)
				files = append(files, file)
			} else if strings.Contains(string(text), "\nfunc Example") {
				examples.Write(text)
				if strings.Contains(string(text), "tundish/internal/") {
					t.Errorf("%s imports an internal package", name)
				}
			}
		}
		p := must.Get(doc.NewFromFiles(set, files, "github.com/tundish-io/"+pkg))(t)
		for _, name := range exported(p) {
			if !strings.Contains(examples.String(), name) {
				t.Errorf("package %s: no example uses %s", pkg, name)
			}
		}
	}
}

// exported are the functions and methods of a package, as they are called.
func exported(p *doc.Package) []string {
	var names []string
	funcs := slices.Clone(p.Funcs)
	for _, typ := range p.Types {
		funcs = append(funcs, typ.Funcs...)
		for _, method := range typ.Methods {
			names = append(names, "."+method.Name+"(")
		}
	}
	for _, f := range funcs {
		names = append(names, p.Name+"."+f.Name)
	}
	return names
}
