package controllerruntime

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestUnknownKinds(t *testing.T) {
	t.Parallel()
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{widget.GroupVersion()})
	mapper.Add(widget, meta.RESTScopeNamespace)
	misspelled := []schema.GroupKind{{Kind: "Secrets"}, {Group: "example.com", Kind: "Wigdet"}}
	s := &stores{scheme: scheme.Scheme, mapper: mapper, opt: Options{
		DropManagedFields: []schema.GroupKind{{}, {Kind: "Pod"}, widget.GroupKind(), misspelled[0]},
		Drop: map[schema.GroupKind][]string{
			{}: {"status"}, {Kind: "Secret"}: {"data"}, misspelled[0]: {"data"}, misspelled[1]: {"spec"},
		},
	}}
	if got := s.unknownKinds(); !slices.Equal(got, misspelled) {
		t.Errorf("%v are unknown, want %v", got, misspelled)
	}
}
