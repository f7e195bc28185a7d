// Package coursetest provides operations for tests of package course and its users.
package coursetest

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Epoch returns the time at which the test operations are scheduled.
func Epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC) }

// Requested returns an operation that was not picked up yet. A non-nil edit may change it.
func Requested(edit func(*v1alpha1.Operation)) *v1alpha1.Operation {
	op := &v1alpha1.Operation{}
	op.UID, op.Generation = types.UID("uid"), 1
	op.Annotations = map[string]string{v1alpha1.AnnotationScheduledAt: Epoch().Format(time.RFC3339Nano)}
	op.Spec.OperationID, op.Spec.OperationType = "one", v1alpha1.OperationDelete
	op.Spec.ResourceType, op.Spec.ResourceID = "app", "shop"
	op.Spec.Timeout.Duration = time.Hour
	op.Name = v1alpha1.OperationName("app", "shop")
	if edit != nil {
		edit(op)
	}
	return op
}

// Version returns the resource version as the place of an operation.
func Version(op *v1alpha1.Operation) string { return op.ResourceVersion }
