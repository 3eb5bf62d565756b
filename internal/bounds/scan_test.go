package bounds_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

const root = "../.."

// apart are packages of programs that serve nobody: commands, the demo, tests.
var apart = []string{
	"cmd", "examples", "internal/bounds", "internal/checker", "internal/cli", "internal/config", "internal/demo", "internal/doctor", "internal/faultproxy", "internal/llmprovider",
	"internal/load", "internal/nginxtest", "internal/redistest", "node_modules", "scripts", "shaper/internal/rig", "test", "testdata",
}

// caches are types that keep what they are given, beside maps.
var caches = []string{"list.List", "lru.Cache", "sync.Map"}

// grows reports whether a value of a type keeps any number of entries.
func grows(of ast.Expr) (found bool) {
	ast.Inspect(of, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType, *ast.StructType, *ast.InterfaceType:
			return false
		case *ast.MapType:
			found = true
		case *ast.SelectorExpr:
			of, _ := n.X.(*ast.Ident)
			found = found || of != nil && slices.Contains(caches, of.Name+"."+n.Sel.Name)
		}
		return true
	})
	return found
}

// structuresOf returns the types, the fields of types and the variables of a file that grow, as "package Type.field".
func structuresOf(in string, file *ast.File) (names []string) {
	add := func(name string) { names = append(names, in+" "+name) }
	fields := func(name string, of *ast.StructType) {
		for _, field := range of.Fields.List {
			if grows(field.Type) {
				for _, f := range field.Names {
					add(name + "." + f.Name)
				}
			}
		}
	}
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if of, isStruct := s.Type.(*ast.StructType); isStruct {
					fields(s.Name.Name, of)
				} else if grows(s.Type) {
					add(s.Name.Name)
				}
			case *ast.ValueSpec: // a map with its content is a table
				for _, name := range s.Names {
					switch of := s.Type.(type) {
					case nil:
					case *ast.StructType:
						fields(name.Name, of)
					default:
						if grows(of) && len(s.Values) == 0 {
							add(name.Name)
						}
					}
				}
			}
		}
	}
	return names
}

// structures are those of all packages.
func structures(t *testing.T) (names []string) {
	t.Helper()
	packages := map[string]*lists{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		in, _ := filepath.Rel(root, name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains(apart, filepath.ToSlash(in)) || slices.Contains(apart, entry.Name()) || strings.HasPrefix(entry.Name(), ".") && in != "."):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(in))
		if pkg == "." {
			pkg = file.Name.Name
		}
		names = append(names, structuresOf(pkg, file)...)
		if packages[pkg] == nil {
			packages[pkg] = newLists(pkg)
		}
		packages[pkg].add(file)
		return nil
	})
	must.OK(t, err)
	for _, of := range packages {
		names = append(names, of.found()...)
	}
	return names
}

var (
	keyOfScript = regexp.MustCompile(`(?m)^-- KEYS\[[^\]]*\] +(?:…:|(tundish:))(\S+)`)
	keyOfBucket = regexp.MustCompile(`Prefix \+ ()"([^"]+)"`)

	// What else a header names: keys in the lines behind the first one of KEYS, and fields of callers.
	header     = regexp.MustCompile(`^(?:--.*\n)+`)
	keyOfLines = regexp.MustCompile(`…:([a-z_]+:(?:<[a-z]+>:?)*)`)
	ofCallers  = regexp.MustCompile(`\b([a-z_]+:<digits>)`)
)

// redisKeys are those that the headers of the scripts name, and those that package store makes.
func redisKeys(t *testing.T) (names []string) {
	t.Helper()
	scripts, _ := filepath.Glob(root + "/lua/*.lua")
	pieces, _ := filepath.Glob(root + "/lua/lib/*.lua")
	stores, _ := filepath.Glob(root + "/shaper/internal/store/*.go")
	if len(scripts) == 0 || len(stores) == 0 {
		t.Fatalf("%d scripts, %d files of package store", len(scripts), len(stores))
	}
	for _, name := range slices.Concat(scripts, pieces, stores) {
		pattern := keyOfScript
		if strings.HasSuffix(name, ".go") {
			pattern = keyOfBucket
		}
		text := must.Get(os.ReadFile(name))(t)
		for _, found := range pattern.FindAllStringSubmatch(string(text), -1) {
			names = append(names, strings.TrimSuffix(found[1]+found[2], ","))
		}
		for _, pattern := range []*regexp.Regexp{keyOfLines, ofCallers} {
			for _, found := range pattern.FindAllSubmatch(header.Find(text), -1) {
				names = append(names, string(found[1]))
			}
		}
	}
	return names
}
