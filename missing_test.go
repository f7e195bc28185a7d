package fairlead_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Who has forgotten to install definitions is told of all of them, those of every controller and of each of its
// watches.
func TestAllKindsThatAreMissingAreTold(t *testing.T) {
	t.Parallel()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rt := fairlead.New(s.Config())
	kind := func(name string) reconcile.WatchOption {
		return reconcile.Kind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: name})
	}
	done := reconcile.Func[metav1.PartialObjectMetadata](
		func(context.Context, *metav1.PartialObjectMetadata) (reconcile.Result, error) {
			return reconcile.Done, nil
		},
	)
	reconcile.New[metav1.PartialObjectMetadata](rt, "one", done, reconcile.Primary(kind("One")),
		reconcile.Owns[metav1.PartialObjectMetadata](kind("Child")),
		reconcile.Owns[metav1.PartialObjectMetadata](kind("Grandchild")))
	reconcile.New[metav1.PartialObjectMetadata](rt, "two", done, reconcile.Primary(kind("Two")))
	reconcile.New[metav1.PartialObjectMetadata](rt, "three", done, reconcile.Primary(kind("Three")))
	err = rt.Run(t.Context())
	if err == nil {
		t.Fatal("it runs")
	}
	for _, name := range []string{"One", "Child", "Grandchild", "Two", "Three"} {
		if !strings.Contains(err.Error(), `no matches for kind "`+name+`"`) {
			t.Errorf("%s is not told: %v", name, err)
		}
	}
}
