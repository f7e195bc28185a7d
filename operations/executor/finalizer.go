package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/writeoption"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/effort"
)

// An Operation that is deleted while it is in progress is cancelled first. A finalizer keeps the object for that
// time. It is added only when the operation has to wait, is expected to (run.expectsPoll), or may need compensation, so
// short operations cost no extra write.

func held(op *v1alpha1.Operation) bool { return slices.Contains(op.Finalizers, v1alpha1.Finalizer) }

// waits reports whether a call of the operation waits for its next try, poll or callback, or the operation has
// compensations.
func waits(op *v1alpha1.Operation) bool {
	if len(op.Spec.CompensateWebhookIDs) > 0 {
		return true
	}
	waiting := func(e v1alpha1.WebhookCallStatus) bool {
		return !e.State.Terminal() && (e.NextAttemptAt != nil || e.AwaitsCallback())
	}
	s := &op.Status
	return slices.ContainsFunc(s.Webhooks, waiting) || slices.ContainsFunc(s.Compensations, waiting) ||
		s.Notification != nil && waiting(*s.Notification)
}

// hold adds the finalizer.
func (w *writes) hold(ctx context.Context, d draft) error {
	if held(d.op) || d.op.DeletionTimestamp != nil || d.op.Status.Phase.Terminal() {
		return nil
	}
	return w.setFinalizers(ctx, d, append(slices.Clone(d.op.Finalizers), v1alpha1.Finalizer))
}

// holdWaiting is hold for an operation that waits.
func (w *writes) holdWaiting(ctx context.Context, d draft) error {
	if !waits(d.op) {
		return nil
	}
	return w.hold(ctx, d)
}

// release removes the finalizer.
func (w *writes) release(ctx context.Context, d draft) error {
	if !held(d.op) {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(d.op.Finalizers), func(f string) bool { return f == v1alpha1.Finalizer })
	return w.setFinalizers(ctx, d, rest)
}

// setFinalizers replaces the finalizers, conditional on the version that the draft knows.
func (w *writes) setFinalizers(ctx context.Context, d draft, finalizers []string) error {
	metadata := map[string]any{"finalizers": finalizers}
	for {
		if d.thin >= course.Unowned {
			metadata["managedFields"] = json.RawMessage(course.Reset)
		}
		patch, err := json.Marshal(map[string]any{"metadata": metadata})
		if err != nil {
			return err
		}
		err = w.patch(ctx, d, patch)
		switch {
		case errors.Is(err, call.ErrTooLarge) && d.thin < course.Unowned:
			d.thin = course.Unowned
			continue
		case err != nil:
			return fmt.Errorf("cannot set the finalizer: %w", err)
		}
		return nil
	}
}

// remove deletes the Operation after its time to live, if the object is still in the version that the draft knows.
func (w *writes) remove(ctx context.Context, d draft) error {
	if !w.pay(d) {
		return errShort
	}
	size := 0
	err := w.writer(d).Delete(ctx, w.named(d),
		client.SameUID(), client.SameVersion(), client.IgnoreNotFound(), writeoption.ConflictsExpected(),
		writeoption.Answered(func(raw []byte) { size = effort.Of(raw) }))
	w.settleCost(d, size, err)
	if apierrors.IsConflict(err) {
		return nil // it has changed: its event wakes the flow
	}
	return err
}
