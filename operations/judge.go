package operations

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// vanished reports whether a create failed because the object was deleted meanwhile. An earlier attempt, whose answer
// was lost, may have created that object.
func vanished(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Name == name
}

// judge decides how a request relates to the existing Operation. It returns the Operation as the answer, or an error.
// It returns neither if the Operation has ended and the request may replace it.
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
		if old.Spec.OperationType != wanted.OperationType { // the history keeps only the type of the request
			return nil, ErrIDReused
		}
		return old, nil
	}
	if !found.Terminal() || found.DeletionTimestamp != nil {
		return nil, &InProgressError{Running: found}
	}
	return nil, nil
}

// earlier returns the ended operation with the given id if later ones have followed it. It reads the history, or the
// status as long as the executor has not picked up the successor. It returns nil if there is none.
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

// past returns an earlier, ended operation of the resource as far as the history records it.
func past(found *v1alpha1.Operation, h v1alpha1.FinishedOperation) *v1alpha1.Operation {
	op := found.DeepCopy()
	for _, of := range []string{ // these describe the present request
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

// same reports whether two specs request the same operation. It ignores cancelRequested.
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
	// Semantic equality: a server does not preserve the difference between nil and empty.
	return equality.Semantic.DeepEqual(normal(a), normal(b))
}
