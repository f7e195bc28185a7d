package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
)

// An Operation that is deleted while it is in progress is cancelled first. A finalizer holds it for that, but only once
// it has to wait or could need compensation: short operations do without the extra writes.

func held(op *v1alpha1.Operation) bool { return slices.Contains(op.Finalizers, v1alpha1.Finalizer) }

// hold adds the finalizer.
func (e *Executor) hold(ctx context.Context, r *run) error {
	if held(r.op) || r.op.DeletionTimestamp != nil || r.op.Status.Phase.Terminal() {
		return nil
	}
	return e.setFinalizers(ctx, r, append(slices.Clone(r.op.Finalizers), v1alpha1.Finalizer))
}

// release takes the finalizer away.
func (e *Executor) release(ctx context.Context, r *run) error {
	if !held(r.op) {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(r.op.Finalizers), func(f string) bool { return f == v1alpha1.Finalizer })
	return e.setFinalizers(ctx, r, rest)
}

// setFinalizers replaces the finalizers of exactly the version that the run knows.
func (e *Executor) setFinalizers(ctx context.Context, r *run, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": r.op.ResourceVersion, "finalizers": finalizers},
	})
	if err != nil {
		return err
	}
	answer, err := call.Do(ctx, e.calls, operationRequest(call.VerbPatch, r.key, func(q *call.Request) {
		q.PatchType, q.Body = types.MergePatchType, patch
	}), e.policy)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		if err := e.reload(ctx, r); err != nil {
			return err
		}
		return errOutdated
	case err != nil:
		return fmt.Errorf("cannot set the finalizer: %w", err)
	}
	op := &v1alpha1.Operation{}
	if err := answer.Into(op); err != nil {
		return err
	}
	r.adopt(op)
	e.wrote(r.live, op.ResourceVersion)
	return nil
}

// remove deletes the Operation after its time to live, if it is still the one that ended.
func (e *Executor) remove(ctx context.Context, r *run) error {
	body := fmt.Sprintf(`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":%q,"resourceVersion":%q}}`,
		r.op.UID, r.op.ResourceVersion)
	_, err := call.Do(ctx, e.calls, operationRequest(call.VerbDelete, r.key, func(q *call.Request) {
		q.Body, q.NotFoundOK = []byte(body), true
	}), e.policy)
	if apierrors.IsConflict(err) {
		return nil // it has changed, and its event starts a new look
	}
	return err
}
