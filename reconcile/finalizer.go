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

// finalizer adds and removes the finalizer of a controller. It has no state.
type finalizer struct {
	name string
	// change applies fn to the metadata of obj, at the server and in obj.
	change func(ctx context.Context, c *client.Client, obj client.Object, fn func(client.Object) error) error
	// read reads an object from the server.
	read func(ctx context.Context, c *client.Client, k Key) (client.Object, error)
}

// on reports whether an object has the finalizer.
func (f *finalizer) on(obj client.Object) bool { return slices.Contains(obj.GetFinalizers(), f.name) }

// isGone reports whether err means that the object, or this incarnation of it, does not exist.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) || errors.Is(err, client.ErrReplaced)
}

// errDeleting stops adding a finalizer to an object that is being deleted: the server would refuse it.
var errDeleting = errors.New("it is being deleted")

// add adds the finalizer to obj before the reconciler can cause any external effect. gone reports that the object is
// deleted or being deleted.
func (f *finalizer) add(ctx context.Context, own *client.Client, obj client.Object) (gone bool, err error) {
	err = f.change(ctx, own, obj, func(o client.Object) error {
		if o.GetDeletionTimestamp() != nil {
			return errDeleting
		}
		if !f.on(o) {
			o.SetFinalizers(append(slices.Clone(o.GetFinalizers()), f.name))
		}
		return nil
	})
	switch {
	case isGone(err), errors.Is(err, errDeleting):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cannot add finalizer %s: %w", f.name, err)
	}
	return false, nil
}

// errAllocated is matched when a finalizer cannot be removed because package alloc still holds slots.
var errAllocated = errors.New("slots are still allocated")

// remove removes the finalizer from obj. It succeeds if the finalizer or the object is already gone. It checks for
// allocations in the freshest state, so that a value that another process recorded meanwhile is not lost.
func (f *finalizer) remove(ctx context.Context, own *client.Client, obj client.Object) error {
	err := f.change(ctx, own, obj, func(o client.Object) error {
		if !f.on(o) {
			return nil
		}
		if held := alloc.Held(o); len(held) > 0 {
			return fmt.Errorf("%w: %v; Cleanup has to Release them", errAllocated, held)
		}
		o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()),
			func(name string) bool { return name == f.name }))
		return nil
	})
	if err == nil || isGone(err) {
		return nil
	}
	if apierrors.IsInvalid(err) { // another client may have removed it, or the object violates its schema
		live, e := f.read(ctx, own, client.KeyOf(obj))
		if isGone(e) || e == nil && (live.GetUID() != obj.GetUID() || !f.on(live)) {
			return nil
		}
	}
	return fmt.Errorf("cannot remove finalizer %s: %w", f.name, err)
}
