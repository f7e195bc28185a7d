package alloc

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

// stored is one slot of one object in the API server, and the last known state of the object. It belongs to one call of
// Once or Release and needs no lock.
type stored[T any, PT client.ObjectOf[T]] struct {
	c      *client.Client
	obj    PT // after change: the server's answer or the result of a live read
	name   string
	behind bool // the cache was found to be behind the server
}

// cached returns the value in the client's cache. All other cached state is ignored.
func (r *stored[T, PT]) cached(ctx context.Context) (string, bool) {
	shown := PT(new(T))
	shown.GetObjectKind().SetGroupVersionKind(r.obj.GetObjectKind().GroupVersionKind())
	if err := r.c.Get(ctx, client.KeyOf(r.obj), shown); err != nil {
		return "", false
	}
	if want := r.obj.GetUID(); want != "" && want != shown.GetUID() {
		return "", false
	}
	value, ok := Values(shown)[r.name]
	return value, ok
}

// slot returns the slot in obj, including its mark.
func (r *stored[T, PT]) slot() (Slot, error) {
	slots, err := slotsOf(r.obj)
	return slots[r.name], err
}

// at returns the slot that obj has at a place.
func (r *stored[T, PT]) at(p place) Slot {
	slots, _, _ := kept(r.obj, p)
	return slots[r.name]
}

// marked reports whether the slots are in the status and therefore need a mark in the annotation.
func (r *stored[T, PT]) marked() bool {
	_, inStatus := statusField(r.obj, false)
	return inStatus
}

// errUnconfirmed ends a change that failed on the cached state.
var errUnconfirmed = errors.New("the cache is not conclusive")

// change applies fn to the slot and writes it to a place, with optimistic locking. If, on the cached state, fn fails,
// there is no change, or the object is absent, change repeats with the server's state. Afterwards obj holds the
// server's answer or state.
func (r *stored[T, PT]) change(ctx context.Context, at place, fn func(PT, *Slot) error) error {
	if !r.behind {
		wrote, err := r.modify(ctx, at, fn)
		if wrote && err == nil || err != nil && !errors.Is(err, errUnconfirmed) && !r.gone(err) {
			return err
		}
		r.behind = true
	}
	_, err := r.modify(ctx, at, fn, writeoption.FromLive())
	return err
}

// modify reports whether fn changed the slot at that place.
func (r *stored[T, PT]) modify(
	ctx context.Context, at place, fn func(PT, *Slot) error, opts ...client.WriteOption,
) (wrote bool, err error) {
	change := func(o PT) error {
		wrote = false
		slots, err := slotsOf(o)
		s := slots[r.name]
		if err == nil {
			err = fn(o, &s)
		}
		if err != nil && !r.behind {
			return errUnconfirmed
		}
		if err != nil {
			return err
		}
		if at == inMark && r.marked() {
			s = markOf(s)
		}
		was, _, err := kept(o, at)
		if err != nil || was[r.name].equal(s) {
			return err
		}
		wrote = true
		return keep(o, at, r.name, s)
	}
	if at == inSlot && r.marked() {
		err = client.ModifyStatus(ctx, r.c, r.obj, change, opts...)
	} else {
		err = client.Modify(ctx, r.c, r.obj, change, opts...)
	}
	return wrote, err
}

// gone reports whether the object, or its incarnation, does not exist. It returns false if the kind or a subresource
// does not exist.
func (r *stored[T, PT]) gone(err error) bool {
	if errors.Is(err, client.ErrReplaced) {
		return true
	}
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return false
	}
	d := answer.Status().Details
	return d != nil && d.Name == r.obj.GetName()
}
