package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
)

func hasFinalizer(obj client.Object, name string) bool {
	return slices.Contains(obj.GetFinalizers(), name)
}

// isGone reports whether err means that the object, or this incarnation of it, does not exist.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) || errors.Is(err, client.ErrReplaced)
}

// errDeleting stops adding a finalizer to an object that is being deleted: the server would refuse it.
var errDeleting = errors.New("it is being deleted")

// addFinalizer adds the finalizer to obj before the reconciler can cause any external effect. gone reports that the
// object is deleted or being deleted.
func (c *Controller) addFinalizer(ctx context.Context, own *client.Client, obj client.Object) (gone bool, err error) {
	err = c.object.finalize(ctx, own, obj, func(o client.Object) error {
		if o.GetDeletionTimestamp() != nil {
			return errDeleting
		}
		if !hasFinalizer(o, c.set.finalizer) {
			o.SetFinalizers(append(slices.Clone(o.GetFinalizers()), c.set.finalizer))
		}
		return nil
	})
	switch {
	case isGone(err), errors.Is(err, errDeleting):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cannot add finalizer %s: %w", c.set.finalizer, err)
	}
	return false, nil
}

// errAllocated is matched when a finalizer cannot be removed because package alloc still holds slots.
var errAllocated = errors.New("slots are still allocated")

// removeFinalizer removes the finalizer from obj. It succeeds if the finalizer or the object is already gone. It checks
// for allocations in the freshest state, so that a value that another process recorded meanwhile is not lost.
func (c *Controller) removeFinalizer(ctx context.Context, own *client.Client, obj client.Object) error {
	err := c.object.finalize(ctx, own, obj, func(o client.Object) error {
		if !hasFinalizer(o, c.set.finalizer) {
			return nil
		}
		if held := alloc.Held(o); len(held) > 0 {
			return fmt.Errorf("%w: %v; Cleanup has to Release them", errAllocated, held)
		}
		o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()),
			func(f string) bool { return f == c.set.finalizer }))
		return nil
	})
	if err == nil || isGone(err) {
		return nil
	}
	if apierrors.IsInvalid(err) { // another client may have removed it, or the object violates its schema
		live := c.object.fresh()
		live.GetObjectKind().SetGroupVersionKind(c.main.kind)
		e := own.Live().Get(ctx, client.KeyOf(obj), live)
		if isGone(e) || e == nil && (live.GetUID() != obj.GetUID() || !hasFinalizer(live, c.set.finalizer)) {
			return nil
		}
	}
	return fmt.Errorf("cannot remove finalizer %s: %w", c.set.finalizer, err)
}
