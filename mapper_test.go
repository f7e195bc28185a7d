package fairlead_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func TestKindThatIsInstalledLater(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	mapper := fairlead.New(server.Config()).Client().Mapper()
	later := schema.GroupKind{Group: "later.fairlead.io", Kind: "Later"}
	if _, err := mapper.RESTMapping(later, "v1"); !meta.IsNoMatchError(err) {
		t.Fatalf("got %v, want no match", err)
	}
	server.Register(apiserver.Resource{
		Group: later.Group, Version: "v1", Resource: "laters", Kind: later.Kind,
		Namespaced: true,
	})
	if _, err := mapper.RESTMapping(later, "v1"); err != nil {
		t.Error(err)
	}
}
