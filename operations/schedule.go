package operations

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// mostInvalid bounds how often an Invalid answer counts as a lost race: the server may refuse the change only because
// the object has changed since it was read.
const mostInvalid = 5

// schedule writes the Operation of a request, or returns the one of an earlier request with the same id. It calls
// replacing, if not nil, before it replaces an ended operation.
func schedule(
	ctx context.Context, o objects, namespace string, spec v1alpha1.OperationSpec,
	replacing func(ctx context.Context, ended *v1alpha1.Operation) error,
) (*v1alpha1.Operation, error) {
	wanted := &v1alpha1.Operation{Spec: spec}
	wanted.Name = v1alpha1.OperationName(spec.ResourceType, spec.ResourceID)
	wanted.Namespace = namespace
	wanted.Default()
	var race contest
	for race.next(ctx) {
		wanted.ResourceVersion = ""
		stamp(ctx, wanted)
		op, err := o.write(ctx, call.VerbCreate, wanted)
		if !apierrors.IsAlreadyExists(err) && !vanished(err, wanted.Name) {
			return op, err
		}
		race.lost = err
		found, err := o.read(ctx, wanted.Name)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue // deleted in between
		}
		if answer, err := judge(found, &wanted.Spec); answer != nil || err != nil {
			return answer, err
		}
		if replacing != nil {
			if err := replacing(ctx, found); err != nil {
				return nil, err
			}
		}
		replacement := found.DeepCopy()
		replacement.Spec = wanted.Spec
		stamp(ctx, replacement)
		op, err = o.write(ctx, call.VerbUpdate, replacement)
		switch {
		case err == nil:
			return op, nil
		case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err) && race.rounds < mostInvalid:
			race.lost = err // lost the race: read the object again
		default:
			return nil, err
		}
	}
	return nil, race.err()
}

// stamp records the time and the span in which the present request of an Operation was scheduled.
func stamp(ctx context.Context, op *v1alpha1.Operation) {
	if op.Annotations == nil {
		op.Annotations = make(map[string]string)
	}
	op.Annotations[v1alpha1.AnnotationScheduledAt] = time.Now().UTC().Format(time.RFC3339Nano)
	keepTrace(ctx, op)
}

// retry schedules the request of a failed operation again, with a new id.
func retry(ctx context.Context, o objects, name string) (*v1alpha1.Operation, error) {
	ours, failed := uuid.NewString(), ""
	var race contest
	for race.next(ctx) {
		op, err := o.read(ctx, name)
		if err != nil {
			return nil, err
		}
		if op == nil {
			return nil, ErrNotFound
		}
		if op.EffectiveID() == ours { // the answer to our write was lost, and the object has changed since
			return op, nil
		}
		switch old := earlier(op, ours); {
		case old != nil:
			return old, nil
		case failed != "" && op.EffectiveID() != failed:
			return nil, fmt.Errorf("%w: %s", ErrFollowed, op.EffectiveID())
		case !op.Terminal() || op.DeletionTimestamp != nil:
			return nil, &InProgressError{Running: op}
		case op.Status.Phase == v1alpha1.PhaseSuccess:
			return nil, ErrSucceeded
		}
		failed = op.EffectiveID()
		op.Spec.OperationID, op.Spec.CancelRequested = ours, false
		stamp(ctx, op)
		// The resourceVersion makes the update follow the failed operation and no other one.
		written, err := o.write(ctx, call.VerbUpdate, op)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return written, err
		}
		race.lost = err
	}
	return nil, race.err()
}
