package discover_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/discover"
)

func TestMapperFindsNewKinds(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	m, err := discover.NewMapper(server.Config(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	later := schema.GroupKind{Group: "later.fairlead.io", Kind: "Later"}
	if _, err := m.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.RESTMapping(later, "v1"); !meta.IsNoMatchError(err) {
		t.Fatalf("got %v, want no match", err)
	}
	server.Register(apiserver.Resource{
		Group: later.Group, Version: "v1", Resource: "laters", Kind: later.Kind,
		Namespaced: true,
	})
	got, err := m.RESTMapping(later, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if got.Resource.Resource != "laters" {
		t.Errorf("got %v", got.Resource)
	}
	before := server.Log().Count(apiserver.Match{})
	for range 100 {
		if _, err := m.RESTMapping(schema.GroupKind{Kind: "Nonsense"}, "v1"); !meta.IsNoMatchError(err) {
			t.Fatalf("got %v, want no match", err)
		}
	}
	if n := server.Log().Count(apiserver.Match{}) - before; n > 100 {
		t.Errorf("%d requests for 100 lookups of a missing kind", n)
	}
}
