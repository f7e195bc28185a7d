package operation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
)

func TestRelatedResourcesOfARequest(t *testing.T) {
	t.Parallel()
	db := func(id string) operation.Resource { return operation.Resource{Type: "db", ID: id} }
	r := operation.Request{
		Type: operation.Delete, Resource: shop, Related: []operation.Resource{db("1"), db("2")},
		Lock: []operation.Resource{db("2"), db("3")},
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

// TestCredentialsByAnyName has the names that the schema refuses (see the tests of the custom resources) refused before
// that.
func TestCredentialsByAnyName(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		"Authorization": true, "AUTHORIZATION": true, "x_authorization": true, "Proxy_Authorization": true,
		"Set-Cookie": true, "cookie2": true,
		"X-Api-Key": true, "X_Api_Key": true, "apikey": true, "Token": true, "X-AuthToken": true, "X-Access-Key": true,
		"Private-Token":        true,
		"X-Amz-Security-Token": true, "X-Forwarded-Client-Cert": true, "Www-Authenticate": true, "Password": true,
		"X-Request-Id": false, "Idempotency-Key": false, "X-Author": false, "X-Tokens": false, "X-Key": false,
		"Content-Type": false,
	}
	for name, want := range tests {
		if got := operation.CarriesCredentials(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
