package bounds_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// growing are calls that make a list longer.
var growing = []string{"append", "slices.Insert", "slices.Concat"}

// lists finds the fields of a package that hold lists, and the channels that hold values, for longer than a call: fields that an append is assigned to, or
// a channel whose room is no number of the code. What lives long is a type with a lock, an atomic or a channel, which goroutines share, and each type of the
// package that its fields name.
type lists struct {
	in      string
	structs map[string]*ast.StructType
	grown   map[string]bool // names of fields
}

func newLists(in string) *lists { return &lists{in, map[string]*ast.StructType{}, map[string]bool{}} }

func (l *lists) add(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if of, isStruct := n.Type.(*ast.StructType); isStruct {
				l.structs[n.Name.Name] = of
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if field, isField := to.(*ast.SelectorExpr); isField && len(n.Rhs) == len(n.Lhs) && (isGrowth(n.Rhs[i]) || isRoom(n.Rhs[i])) {
					l.grown[field.Sel.Name] = true
				}
			}
		case *ast.KeyValueExpr:
			if field, isField := n.Key.(*ast.Ident); isField && isRoom(n.Value) {
				l.grown[field.Name] = true
			}
		}
		return true
	})
}

// isGrowth reports whether a value is a list that was made longer.
func isGrowth(value ast.Expr) bool {
	call, isCall := value.(*ast.CallExpr)
	if !isCall {
		return false
	}
	switch of := call.Fun.(type) {
	case *ast.Ident:
		return slices.Contains(growing, of.Name)
	case *ast.SelectorExpr:
		pkg, _ := of.X.(*ast.Ident)
		return pkg != nil && slices.Contains(growing, pkg.Name+"."+of.Sel.Name)
	}
	return false
}

// isRoom reports whether a value is a channel with as much room as something at run time says.
func isRoom(value ast.Expr) bool {
	call, isCall := value.(*ast.CallExpr)
	if !isCall || len(call.Args) != 2 {
		return false
	}
	made, _ := call.Fun.(*ast.Ident)
	_, isChannel := call.Args[0].(*ast.ChanType)
	_, isNumber := call.Args[1].(*ast.BasicLit)
	return made != nil && made.Name == "make" && isChannel && !isNumber
}

// isShared reports whether goroutines share a value of a type.
func isShared(of *ast.StructType) bool {
	return slices.ContainsFunc(of.Fields.List, func(field *ast.Field) (shared bool) {
		ast.Inspect(field.Type, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncType, *ast.StructType:
				return false
			case *ast.ChanType:
				shared = true
			case *ast.SelectorExpr:
				pkg, _ := n.X.(*ast.Ident)
				shared = shared || pkg != nil && (pkg.Name == "sync" || pkg.Name == "atomic")
			}
			return true
		})
		return shared
	})
}

// found are the fields, as "package Type.field".
func (l *lists) found() (names []string) {
	var look func(name string)
	seen := map[string]bool{}
	look = func(name string) {
		of := l.structs[name]
		if of == nil || seen[name] {
			return
		}
		seen[name] = true
		for _, field := range of.Fields.List {
			ast.Inspect(field.Type, func(n ast.Node) bool {
				if id, isName := n.(*ast.Ident); isName {
					look(id.Name)
				}
				_, isFunc := n.(*ast.FuncType)
				return !isFunc
			})
			list, isList := field.Type.(*ast.ArrayType)
			_, isChannel := field.Type.(*ast.ChanType)
			if !isChannel && (!isList || list.Len != nil) || grows(field.Type) { // a list of maps is found already
				continue
			}
			for _, f := range field.Names {
				if l.grown[f.Name] {
					names = append(names, l.in+" "+name+"."+f.Name)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.structs)) {
		if isShared(l.structs[name]) {
			look(name)
		}
	}
	return names
}

// A new list is found where it outlives a call.
func TestANewListIsFound(t *testing.T) {
	t.Parallel()
	file := must.Get(parser.ParseFile(token.NewFileSet(), "new.go", `package new
type a struct {
	mu      sync.Mutex
	waiting []*b
	fixed   [4]int
	set     []int
	room    chan int
	one     chan int
	call    func(*d)
}
type b struct{ parts []string }
type c struct{ parts, waiting []string }
type d struct{ parts []string }
func (x *a) add(y *b, n int) {
	x.waiting, n = append(x.waiting, y), 1
	x.set = []int{n}
	y.parts = slices.Insert(y.parts, 0, "x")
	x.room, x.one = make(chan int, n), make(chan int, 1)
}
`, 0))(t)
	l := newLists("p")
	l.add(file)
	if got, want := strings.Join(l.found(), ", "), "p b.parts, p a.waiting, p a.room"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}
