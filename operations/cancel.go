package operations

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

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
func (s *Scheduler) requestCancel(ctx context.Context, op *v1alpha1.Operation) (*v1alpha1.Operation, error) {
	for gives := givesNothing; ; gives++ {
		body, err := gives.patch(op)
		if err != nil {
			return nil, err
		}
		answer, err := call.Do(ctx, s.calls, call.Request{
			Verb: call.VerbPatch, PatchType: types.MergePatchType, Resource: operations, Kind: v1alpha1.KindOperation,
			Namespace: s.namespace, Name: op.Name, Body: body,
		}, s.policy)
		switch {
		case errors.Is(err, call.ErrTooLarge) && gives < givesObject:
			continue
		case err != nil:
			return nil, err
		}
		canceled := &v1alpha1.Operation{}
		return canceled, answer.Into(canceled)
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
