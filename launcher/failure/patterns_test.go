package failure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// Patterns are compiled when they are first used, which must not be on the day of need.
func TestEveryPatternCompiles(t *testing.T) {
	files, _ := filepath.Glob("*.go")
	below, _ := filepath.Glob("*/*.go")
	n := 0
	for _, file := range append(files, below...) {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			fn, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || fn.Sel.Name != "New" {
				return true
			}
			if of, ok := fn.X.(*ast.Ident); !ok || of.Name != "pattern" {
				return true
			}
			if text, ok := call.Args[0].(*ast.BasicLit); ok {
				n++
				s, _ := strconv.Unquote(text.Value)
				if _, err := regexp.Compile(s); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			} else {
				t.Errorf("%s: a pattern is no literal", file)
			}
			return true
		})
	}
	if n < 60 {
		t.Errorf("only %d patterns", n)
	}
}
