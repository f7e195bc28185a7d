package flow

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
	"unsafe"
)

// A parked fiber consists of its record and perhaps an extra. Their sizes decide the memory of a million fibers.
func TestTheRecordsOfAFiberDoNotGrow(t *testing.T) {
	t.Parallel()
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Fatal("the sizes below are those of 64 bits")
	}
	for _, tc := range []struct {
		name      string
		got, most uintptr
	}{
		{"fiber", unsafe.Sizeof(Fiber[packet]{}), 288},
		{"extra", unsafe.Sizeof(extra{}), 256},
		{"parking", unsafe.Sizeof(parking{}), 72},
		{"trail", unsafe.Sizeof(trail{}), 52},
	} {
		if tc.got > tc.most {
			t.Errorf("%s takes %d bytes, %d are allowed", tc.name, tc.got, tc.most)
		}
	}
}

// Other goroutines read the progress of a running fiber, so every write takes its lock: only the methods of progress
// write it.
func TestProgressIsWrittenByItsMethodsOnly(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	inProgress := func(e ast.Expr) bool { // f.progress.x
		field, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		of, ok := field.X.(*ast.SelectorExpr)
		return ok && of.Sel.Name == "progress"
	}
	writes := 0
	for _, path := range paths {
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					if _, ok := e.(*ast.SelectorExpr); ok && path == "progress.go" {
						writes++
					}
					if inProgress(e) {
						t.Errorf("%v: a field of progress is assigned", fset.Position(e.Pos()))
					}
				}
			case *ast.IncDecStmt:
				if inProgress(n.X) {
					t.Errorf("%v: a field of progress is counted", fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if writes == 0 {
		t.Error("no write was found in progress.go, so the test checks nothing")
	}
}
