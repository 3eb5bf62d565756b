package lua_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"strings"
	"testing"
)

// The codes have the same names and values in Go and in Lua.
func TestCodesAreEqual(t *testing.T) {
	t.Parallel()
	inLua := map[string]string{}
	for _, m := range regexp.MustCompile(`\b([A-Z][A-Z_]+) = '?(-?\d+)'?,`).FindAllStringSubmatch(fileText(t, "lib/codes"), -1) {
		inLua[strings.ReplaceAll(m[1], "_", "")] = m[2]
	}
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	inGo := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			value, sign := spec.Values[0], ""
			if minus, ok := value.(*ast.UnaryExpr); ok {
				value, sign = minus.X, minus.Op.String()
			}
			literal, _ := value.(*ast.BasicLit)
			inGo[strings.ToUpper(spec.Names[0].Name)] = sign + literal.Value
		}
		return true
	})
	if len(inGo) == 0 || !maps.Equal(inLua, inGo) {
		t.Errorf("codes.lua has %v,\ncodes.go has %v", inLua, inGo)
	}
}
