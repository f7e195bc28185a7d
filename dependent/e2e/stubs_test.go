package e2e_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// stubs returns an object of each kind that Kubernetes persists. They are data of its own storage tests, from the
// source of the module from which the control plane is built.
func stubs(t *testing.T) map[schema.GroupVersionResource]*unstructured.Unstructured {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	list.Dir = "../../controlplane"
	dir, err := list.Output()
	if err != nil {
		t.Fatalf("cannot find the source of Kubernetes: %v", err)
	}
	file := filepath.Join(strings.TrimSpace(string(dir)), "test", "integration", "etcd", "data.go")
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[schema.GroupVersionResource]*unstructured.Unstructured{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		entry, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		call, ok := entry.Key.(*ast.CallExpr)
		data, isData := entry.Value.(*ast.CompositeLit)
		if !ok || !isData || len(call.Args) != 3 {
			return true
		}
		gvr := schema.GroupVersionResource{
			Group: text(call.Args[0]), Version: text(call.Args[1]),
			Resource: text(call.Args[2]),
		}
		for _, field := range data.Elts {
			kv, ok := field.(*ast.KeyValueExpr)
			if !ok || kv.Key.(*ast.Ident).Name != "Stub" {
				continue
			}
			u := &unstructured.Unstructured{}
			if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text(kv.Value)), &u.Object); err != nil {
				t.Fatalf("cannot read the stub of %s: %v", gvr, err)
			}
			for _, path := range unknown[gvr.Resource] {
				unstructured.RemoveNestedField(u.Object, strings.Split(path, ".")...)
			}
			all[gvr] = u
		}
		return true
	})
	return all
}

// unknown are fields of some stubs that their schema does not have. Applying them is an error.
var unknown = map[string][]string{
	"priorityclasses": {"Value"}, "clusterrolebindings": {"subjects"}, "rolebindings": {"subjects"},
	"endpointslices": {"protocol"}, "podcertificaterequests": {"userConfig"},
}

// text evaluates a string expression. Names stand for the image, or the namespace.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		if err != nil {
			panic(err)
		}
		return s
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	case *ast.Ident:
		if e.Name == "namespace" {
			return "default"
		}
		return "busybox"
	}
	panic("no string")
}
