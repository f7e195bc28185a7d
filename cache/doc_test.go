package cache_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/cache"
)

// TestDocumentedMembers: go doc shows no members of an alias, so the comments list them. Each listed member exists.
func TestDocumentedMembers(t *testing.T) {
	t.Parallel()
	types := map[string]reflect.Type{
		"Cache": reflect.TypeFor[*cache.Cache](), "CacheOptions": reflect.TypeFor[*cache.CacheOptions](),
		"Handle": reflect.TypeFor[*cache.Handle](), "Store": reflect.TypeFor[*cache.Store](),
		"Record": reflect.TypeFor[*cache.Record](), "View": reflect.TypeFor[*cache.View[corev1.Pod]](),
		"Content": reflect.TypeFor[*cache.Content](),
	}
	file, err := parser.ParseFile(token.NewFileSet(), "cache.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	item := regexp.MustCompile(`(?m)^//   - (\w+)(\.\w+)?(\()?`)
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		name, doc := g.Specs[0].(*ast.TypeSpec).Name.Name, ""
		for _, line := range g.Doc.List {
			doc += line.Text + "\n"
		}
		items := item.FindAllStringSubmatch(doc, -1)
		of := types[name]
		if of == nil {
			if len(items) > 0 {
				t.Errorf("the test lacks the type %s", name)
			}
			continue
		}
		if len(items) == 0 {
			t.Errorf("the comment of %s lists no members", name)
		}
		if name == "CacheOptions" {
			inside := []string{"Connection", "Fields"} // used by this module only
			for _, field := range reflect.VisibleFields(of.Elem()) {
				if !slices.Contains(inside, field.Name) && !strings.Contains(doc, "  - "+field.Name) {
					t.Errorf("the comment of %s lacks %s", name, field.Name)
				}
			}
		}
		for _, m := range items {
			member := m[1]
			var found bool
			if m[3] != "" {
				_, found = of.MethodByName(member)
			} else {
				var field reflect.StructField
				if field, found = of.Elem().FieldByName(member); found && m[2] != "" {
					_, found = field.Type.FieldByName(m[2][1:])
				}
			}
			if !found {
				t.Errorf("%s has no %s", name, member)
			}
		}
	}
}
