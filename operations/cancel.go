package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// cancel requests the cancellation of an operation. An empty id means the present one.
func cancel(ctx context.Context, o objects, name, id string) (*v1alpha1.Operation, error) {
	var race contest
	for race.next(ctx) {
		op, err := o.read(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case op == nil:
			return nil, ErrNotFound
		case id == "":
			id = op.EffectiveID()
		case op.EffectiveID() != id:
			if old := earlier(op, id); old != nil {
				return old, ErrEnded
			}
			return nil, fmt.Errorf("%w: the operation of this resource is %s", ErrNotFound, op.EffectiveID())
		}
		if op.Terminal() {
			return op, ErrEnded
		}
		if op.Spec.CancelRequested {
			return op, nil
		}
		canceled, err := requestCancel(ctx, o, op)
		switch {
		case err == nil:
			return canceled, nil
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			race.lost = err
		default:
			return nil, err
		}
	}
	return nil, race.err()
}

// giving says which parts of an Operation are removed to make room for its cancellation when the Operation is full.
// Each level includes the levels before it.
type giving uint8

const (
	givesNothing  giving = iota
	givesManaged         // managed fields; the server recreates them
	givesMetadata        // foreign labels and annotations
	givesObject          // the request object; last, because compensation may need it
)

// requestCancel sets spec.cancelRequested on exactly the given version of op. Its errors are those of package call.
func requestCancel(ctx context.Context, o objects, op *v1alpha1.Operation) (*v1alpha1.Operation, error) {
	for gives := givesNothing; ; gives++ {
		body, err := gives.patch(op)
		if err != nil {
			return nil, err
		}
		canceled, err := o.patch(ctx, op.Name, body)
		if !errors.Is(err, call.ErrTooLarge) || gives == givesObject {
			return canceled, err
		}
	}
}

// patch returns the merge patch. The resourceVersion keeps it from applying to an Operation that has replaced op.
func (g giving) patch(op *v1alpha1.Operation) ([]byte, error) {
	metadata, spec := map[string]any{"resourceVersion": op.ResourceVersion}, map[string]any{"cancelRequested": true}
	if g >= givesManaged {
		metadata["managedFields"] = []any{map[string]any{}}
	}
	if g >= givesMetadata {
		metadata["labels"], metadata["annotations"] = withoutOthers(op.Labels), withoutOthers(op.Annotations)
	}
	if g >= givesObject {
		spec["requestObject"] = nil
	}
	return json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
}

// withoutOthers returns a patch that removes the keys outside of our group.
func withoutOthers(all map[string]string) map[string]any {
	gone := make(map[string]any)
	for key := range all {
		if !strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
			gone[key] = nil
		}
	}
	return gone
}
