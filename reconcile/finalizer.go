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

// isGone says that an object, or the incarnation of it that was meant, does not exist.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) || errors.Is(err, client.ErrReplaced)
}

// errDeleting ends the addition of a finalizer to an object that is being deleted: the server would refuse it.
var errDeleting = errors.New("it is being deleted")

// addFinalizer puts the finalizer onto obj before the first effect outside can be made. gone says that there is
// nothing to reconcile any more.
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

// errAllocated is matched when a finalizer cannot be removed because slots of package alloc still hold something.
var errAllocated = errors.New("slots are still allocated")

// removeFinalizer takes the finalizer off obj. That it is gone already, or with the object, is a success. It is taken
// off the freshest state only if nothing is allocated there, so that a value that another process has recorded
// meanwhile is not lost.
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
	if apierrors.IsInvalid(err) { // somebody else may have removed it; or the object does not satisfy its schema
		live := c.object.fresh()
		live.GetObjectKind().SetGroupVersionKind(c.main.kind)
		e := own.Live().Get(ctx, client.KeyOf(obj), live)
		if isGone(e) || e == nil && (live.GetUID() != obj.GetUID() || !hasFinalizer(live, c.set.finalizer)) {
			return nil
		}
	}
	return fmt.Errorf("cannot remove finalizer %s: %w", c.set.finalizer, err)
}
