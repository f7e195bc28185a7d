package executor_test

import (
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func TestRequestWithoutAScheduler(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(op *v1alpha1.Operation)
		want   string
	}{
		"Name": {
			"Another name would allow two operations of one resource.",
			func(op *v1alpha1.Operation) { op.Name = "any" }, "metadata.name",
		},
		"Size": {
			"The schema cannot measure the request object.",
			func(op *v1alpha1.Operation) {
				op.Spec.RequestObject = &v1alpha1.RequestObject{
					Resource: operationbed.RawJSON(`"` + strings.Repeat("x", v1alpha1.MaxRequestObjectBytes) + `"`),
				}
			}, "spec.requestObject",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.Start(nil)
			op := &v1alpha1.Operation{Spec: v1alpha1.OperationSpec{
				OperationType: operations.Delete, ResourceReference: v1alpha1.ResourceReference{
					ResourceType: "app", ResourceID: "1",
				},
			}}
			op.Name, op.Namespace = "app-1", b.Namespace
			tc.change(op)
			op.Default()
			b.Create(v1alpha1.OperationsResource, v1alpha1.KindOperation, op)
			b.Eventually("ended", func() bool {
				answer, err := call.Do(b.Ctx, b.Calls, call.Request{
					Verb: call.VerbGet, Resource: v1alpha1.OperationsResource,
					Kind: v1alpha1.KindOperation, Namespace: b.Namespace, Name: op.Name,
				}, call.Policy{})
				if err != nil {
					t.Fatal(err)
				}
				got := &v1alpha1.Operation{}
				if err := answer.Into(got); err != nil {
					t.Fatal(err)
				}
				v := operations.ViewOf(got)
				if v.Terminal() && (v.Reason != v1alpha1.ReasonInvalid || !strings.Contains(v.Error, tc.want)) {
					t.Fatalf("%s: %s %s", tc.reason, v.Reason, v.Error)
				}
				return v.Terminal()
			})
		})
	}
}
