package operations_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func TestRelatedResourcesOfARequest(t *testing.T) {
	t.Parallel()
	db := func(id string) operations.Resource { return operations.Resource{Type: "db", ID: id} }
	r := operations.Request{
		Type: operations.Delete, Resource: shop, Related: []operations.Resource{db("1"), db("2")},
		Lock: []operations.Resource{db("2"), db("3")},
	}
	spec, err := r.Spec()
	if err != nil {
		t.Fatal(err)
	}
	related := func(id string, lock bool) v1alpha1.RelatedResource {
		return v1alpha1.RelatedResource{
			ResourceReference: v1alpha1.ResourceReference{ResourceType: "db", ResourceID: id},
			Lock:              lock,
		}
	}
	want := []v1alpha1.RelatedResource{related("1", false), related("2", true), related("3", true)}
	if diff := cmp.Diff(want, spec.RelatedResources); diff != "" {
		t.Errorf("what is related and locked is named once (-want +got):\n%s", diff)
	}
}
