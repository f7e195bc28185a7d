package operation_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operation"
)

// TestAPIServerRefuses has the real API server hold the rules of the custom resources, whoever writes.
func TestAPIServerRefuses(t *testing.T) {
	b := setup(t)
	op, err := b.Schedule(b.ctx, operation.Request{ID: "one", Type: operation.Delete, Resource: shop})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(subresource, body string) error {
		_, err := call.Do(b.ctx, b.calls, call.Request{
			Verb: call.VerbPatch, PatchType: types.MergePatchType, Resource: v1alpha1.OperationsResource,
			Kind: "Operation", Namespace: op.Namespace, Name: op.Name, Subresource: subresource, Body: []byte(body),
		}, call.Policy{})
		return err
	}
	refused := func(reason, subresource, body, want string) {
		t.Helper()
		if err := patch(subresource, body); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", reason, err, want)
		}
	}
	accepted := func(reason, subresource, body string) {
		t.Helper()
		if err := patch(subresource, body); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
	const locked = "spec cannot change until the operation that it asks for has ended"
	refused("not picked up: nobody replaces it", "", `{"spec":{"operationID":"two"}}`, locked)
	accepted("picked up", "status", `{"status":{"phase":"In Progress","operationID":"one"}}`)
	refused("in progress: nobody replaces it", "", `{"spec":{"operationID":"two"}}`, locked)
	refused("in progress: nobody changes it", "", `{"spec":{"timeout":"9h"}}`, locked)
	refused("an enum", "", `{"spec":{"operationType":"Drop"}}`, "spec.operationType")
	refused("an enum of the status", "status", `{"status":{"phase":"Done"}}`, "status.phase")
	accepted("it may be cancelled", "", `{"spec":{"cancelRequested":true}}`)
	refused("and not be uncancelled", "", `{"spec":{"cancelRequested":false}}`, locked)
	accepted("ended", "status", `{"status":{"phase":"Failed"}}`)
	refused("an outcome stays", "status", `{"status":{"phase":"Success"}}`, "one outcome")
	refused("it is about one resource", "", `{"spec":{"resourceID":"other"}}`, "cannot change")
	accepted("a new request follows", "", `{"spec":{"operationID":"two","cancelRequested":false}}`)
	refused("which nobody replaces before it was picked up", "", `{"spec":{"operationID":"three"}}`, locked)
}
