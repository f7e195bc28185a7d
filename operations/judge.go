package operations

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// vanished tells whether a create has failed because what it had perhaps made, before its answer was lost, was deleted
// meanwhile.
func vanished(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Name == name
}

// judge decides what a request means for the Operation that exists: an answer, an error, or neither when it has ended
// and the request may replace it.
func judge(found *v1alpha1.Operation, wanted *v1alpha1.OperationSpec) (*v1alpha1.Operation, error) {
	if found.Spec.ResourceReference != wanted.ResourceReference {
		return nil, fmt.Errorf("the name %s belongs to %s/%s: it was not made by a scheduler", found.Name,
			found.Spec.ResourceType, found.Spec.ResourceID)
	}
	if found.EffectiveID() == wanted.OperationID {
		if !same(&found.Spec, wanted) {
			return nil, ErrIDReused
		}
		return found, nil
	}
	if old := earlier(found, wanted.OperationID); old != nil {
		if old.Spec.OperationType != wanted.OperationType { // what else it asked for is not kept
			return nil, ErrIDReused
		}
		return old, nil
	}
	if !found.Terminal() || found.DeletionTimestamp != nil {
		return nil, &InProgressError{Running: found}
	}
	return nil, nil
}

// earlier returns the operation with that id as it was at its end, if others have followed it: from the history, or
// from the status for as long as that is not about its successor. It returns nil if there is none.
func earlier(found *v1alpha1.Operation, id string) *v1alpha1.Operation {
	if s := &found.Status; s.OperationID == id && s.Phase.Terminal() && !found.PickedUp() {
		op := past(found, v1alpha1.FinishedOperation{OperationID: id, OperationType: s.OperationType, Phase: s.Phase})
		op.Status = *s.DeepCopy()
		return op
	}
	for _, h := range found.Status.History {
		if h.OperationID == id {
			return past(found, h)
		}
	}
	return nil
}

// past returns the Operation as it was when an earlier request of its resource had ended, as far as history tells.
func past(found *v1alpha1.Operation, h v1alpha1.FinishedOperation) *v1alpha1.Operation {
	op := found.DeepCopy()
	for _, of := range []string{ // the present one
		v1alpha1.AnnotationScheduledAt, v1alpha1.AnnotationTraceParent, v1alpha1.AnnotationTraceState,
	} {
		delete(op.Annotations, of)
	}
	op.CreationTimestamp = metav1.Time{}
	op.Spec = v1alpha1.OperationSpec{
		OperationID: h.OperationID, OperationType: h.OperationType, ResourceReference: found.Spec.ResourceReference,
	}
	op.Status = v1alpha1.OperationStatus{
		Phase: h.Phase, OperationID: h.OperationID, OperationType: h.OperationType, FinishedAt: h.FinishedAt.DeepCopy(),
	}
	if h.Reason != "" {
		op.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionError, Status: metav1.ConditionTrue, Reason: h.Reason,
			LastTransitionTime: metav1.NewTime(h.FinishedAt.Time),
		}}
	}
	return op
}

// same tells whether two specs ask for the same, a request to cancel aside.
func same(a, b *v1alpha1.OperationSpec) bool {
	normal := func(s *v1alpha1.OperationSpec) v1alpha1.OperationSpec {
		op := v1alpha1.Operation{Spec: *s.DeepCopy()}
		op.Default()
		op.Spec.CancelRequested = false
		if o := op.Spec.RequestObject; o != nil && o.Resource != nil {
			o.Resource.Raw = canonical(o.Resource.Raw)
		}
		return op.Spec
	}
	// nil and empty are alike: a server does not keep the difference
	return equality.Semantic.DeepEqual(normal(a), normal(b))
}
