package alloc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/protect"
)

// Option tunes Once and Release. What they are told must be the same for both.
type Option func(*options)

type options struct {
	finalizer string
	unguarded bool
	live      bool
	find      func(ctx context.Context, key string) (value string, found bool, err error)
	discard   func(ctx context.Context, key, value string) error
}

// Find gives a function that looks for a resource by its idempotency key, for providers that do not honour keys but can
// keep them, as a tag for example. It is asked before something is created.
func Find(fn func(ctx context.Context, key string) (value string, found bool, err error)) Option {
	return func(o *options) { o.find = fn }
}

// Discard gives a function that gives back a value that cannot be recorded any more; see OrphanError. It may be called
// for a value that was given back before.
func Discard(fn func(ctx context.Context, key, value string) error) Option {
	return func(o *options) { o.discard = fn }
}

// Guard names the finalizer that has to be on the object. In a reconciler of package reconcile it is known.
func Guard(finalizer string) Option { return func(o *options) { o.finalizer = finalizer } }

// Unguarded allocates without a finalizer: what was allocated is lost when the object is deleted.
func Unguarded() Option { return func(o *options) { o.unguarded = true } }

type finalizerKey struct{}

// WithFinalizer returns a context in which a finalizer guards what is allocated.
func WithFinalizer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, finalizerKey{}, name)
}

// Live has Once believe nothing that it has not heard from the server itself: also a value that the cache shows is
// confirmed by a read. It is for those who neither lead nor hold the object.
func Live() Option { return func(o *options) { o.live = true } }

// allocation is one call of Once or Release.
type allocation[T any, PT client.ObjectOf[T]] struct {
	options
	op     string
	c      *client.Client
	obj    PT // after change: what the server has answered, or what a live read has shown
	slot   string
	behind bool // the cache was found to know less than the server
}

func begin[T any, PT client.ObjectOf[T]](
	ctx context.Context, op string, c *client.Client, obj PT, slot string, opts []Option,
) *allocation[T, PT] {
	a := &allocation[T, PT]{op: op, c: c, obj: obj, slot: slot}
	a.behind = obj != nil && obj.GetUID() == "" // which incarnation is meant is for the server to say
	a.finalizer, _ = ctx.Value(finalizerKey{}).(string)
	for _, o := range opts {
		if o != nil {
			o(&a.options)
		}
	}
	return a
}

func (a *allocation[T, PT]) fail(err error) error {
	if a.obj == nil {
		return &Error{Op: a.op, Slot: a.slot, Kind: reflect.TypeFor[T]().Name(), Err: err}
	}
	kind := a.obj.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = reflect.TypeFor[T]().Name()
	}
	return &Error{Op: a.op, Slot: a.slot, Kind: kind, Key: client.KeyOf(a.obj).String(), Err: err}
}

// cached returns the value that the client shows. Whatever else it shows is not believed.
func (a *allocation[T, PT]) cached(ctx context.Context) (string, bool) {
	shown := PT(new(T))
	shown.GetObjectKind().SetGroupVersionKind(a.obj.GetObjectKind().GroupVersionKind())
	if err := a.c.Get(ctx, client.KeyOf(a.obj), shown); err != nil {
		return "", false
	}
	if want := a.obj.GetUID(); want != "" && want != shown.GetUID() {
		return "", false
	}
	value, ok := Values(shown)[a.slot]
	return value, ok
}

// now returns the slot as obj has it.
func (a *allocation[T, PT]) now() (Slot, error) {
	slots, err := slotsOf(a.obj)
	return slots[a.slot], err
}

// says returns what obj has at a place.
func (a *allocation[T, PT]) says(at place) Slot {
	slots, _, _ := kept(a.obj, at)
	return slots[a.slot]
}

// marks says whether what is kept in the slots needs a mark besides.
func (a *allocation[T, PT]) marks() bool {
	_, inStatus := statusField(a.obj, false)
	return inStatus
}

// errUnconfirmed ends a change that fails on what the cache shows.
var errUnconfirmed = errors.New("the cache does not say enough")

// change has fn change the slot, with optimistic locking, and writes it to a place. That fn fails, that there is
// nothing to write, or that the object is not there, is believed only of what the server has: obj is its answer
// afterwards, or was read from it.
func (a *allocation[T, PT]) change(ctx context.Context, at place, fn func(PT, *Slot) error) error {
	if !a.behind {
		wrote, err := a.modify(ctx, at, fn)
		if wrote && err == nil || err != nil && !errors.Is(err, errUnconfirmed) && !a.gone(err) {
			return err
		}
		a.behind = true
	}
	_, err := a.modify(ctx, at, fn, client.FromLive())
	return err
}

func (a *allocation[T, PT]) modify(
	ctx context.Context, at place, fn func(PT, *Slot) error, opts ...client.WriteOption,
) (wrote bool, err error) {
	change := func(o PT) error {
		wrote = false
		slots, err := slotsOf(o)
		s := slots[a.slot]
		if err == nil {
			err = fn(o, &s)
		}
		if err != nil && !a.behind {
			return errUnconfirmed
		}
		if err != nil {
			return err
		}
		if at == inMark && a.marks() {
			s = markOf(s)
		}
		was, _, err := kept(o, at)
		if err != nil || was[a.slot].equal(s) {
			return err
		}
		wrote = true
		return keep(o, at, a.slot, s)
	}
	if at == inSlot && a.marks() {
		err = client.ModifyStatus(ctx, a.c, a.obj, change, opts...)
	} else {
		err = client.Modify(ctx, a.c, a.obj, change, opts...)
	}
	return wrote, err
}

// gone says that the object, or the incarnation of it that is meant, does not exist; and not just its kind, or a
// subresource.
func (a *allocation[T, PT]) gone(err error) bool {
	if errors.Is(err, client.ErrReplaced) {
		return true
	}
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return false
	}
	d := answer.Status().Details
	return d != nil && d.Name == a.obj.GetName()
}

// guarded says why nothing may be allocated for this state of the object.
func (a *allocation[T, PT]) guarded(o PT) error {
	switch {
	case o.GetDeletionTimestamp() != nil:
		return ErrDeleting
	case a.unguarded:
		return nil
	case a.finalizer == "":
		return fmt.Errorf("%w: none is known; let the reconciler have a Cleanup, or use Guard", ErrNoFinalizer)
	case !slices.Contains(o.GetFinalizers(), a.finalizer):
		return fmt.Errorf("%w: %s", ErrNoFinalizer, a.finalizer)
	}
	return nil
}

// Once returns the value of a slot of obj; it is created, by create, if there is none yet. create is given an
// idempotency key and may be called again with the same key after a crash, an error, or a lost answer: it has to return
// the resource of the first call then, or Find has to. What it returns is seen by the next read of the client.
//
// A value that the client shows is returned without asking the server: it is as old as what the client reads, which is
// enough for whoever leads, or holds the object; see [Live]. Everything else is decided by what the server has.
//
// Once fails before create is called if the server does not keep the intent (ErrDropped), the controller's finalizer is
// not on the object (ErrNoFinalizer), or the object is being deleted (ErrDeleting). obj is brought up to date when
// something is written. It is safe for concurrent use with different objs.
func Once[T any, PT client.ObjectOf[T]](
	ctx context.Context, c *client.Client, obj PT, slot string, create func(
		ctx context.Context, key string,
	) (string, error), opts ...Option,
) (string, error) {
	a := begin(ctx, "allocate", c, obj, slot, opts)
	if err := a.check(create == nil); err != nil {
		return "", a.fail(err)
	}
	if len(validation.IsDNS1123Label(slot)) > 0 {
		return "", a.fail(errInvalidSlot)
	}
	if !a.live {
		if value, ok := a.cached(ctx); ok {
			return value, nil
		}
	}
	s, err := a.intend(ctx)
	if err != nil {
		return "", a.fail(err)
	}
	if s.Value != "" { // somebody was faster
		return s.Value, nil
	}
	var value string
	err = guard(func() (err error) {
		value, err = a.create(ctx, s.Key, create)
		return err
	})
	if err != nil {
		return "", a.fail(err)
	}
	if err := a.record(ctx, s, value); err != nil {
		return "", a.fail(err)
	}
	return value, nil
}

// intend makes sure that the server has an intent, and its mark, and returns it, or the value that is there.
func (a *allocation[T, PT]) intend(ctx context.Context) (Slot, error) {
	err := a.change(ctx, inSlot, func(o PT, s *Slot) error {
		switch {
		case s.Releasing, s.Value != "": // which a status that was wiped is to show again
			return nil
		case s.Key == "":
			s.Key = keyOf(o.GetUID(), a.slot, s.Released)
		}
		if s.Since == nil {
			s.Since = &metav1.Time{Time: time.Now().UTC().Truncate(time.Second)}
		}
		return a.guarded(o)
	})
	if err != nil {
		return Slot{}, err
	}
	s, err := a.now()
	switch {
	case err != nil:
		return Slot{}, err
	case s.Releasing:
		return Slot{}, ErrReleasing
	case s.Value != "":
		return s, nil
	case s.Key == "" || a.says(inSlot).Key != s.Key:
		return Slot{}, ErrDropped
	}
	if a.marks() && a.says(inMark) != markOf(s) {
		if s, err = a.mark(ctx, s); err != nil || s.Value != "" {
			return s, err
		}
	}
	return s, a.guarded(a.obj)
}

// mark writes the mark of an intent, and returns what the slot is then.
func (a *allocation[T, PT]) mark(ctx context.Context, want Slot) (Slot, error) {
	err := a.change(ctx, inMark, func(_ PT, s *Slot) error {
		switch {
		case s.Releasing:
			return ErrReleasing
		case s.Key != want.Key || s.Released != want.Released:
			return errStale
		}
		return nil
	})
	if err != nil {
		return Slot{}, err
	}
	if a.says(inMark).Key != want.Key {
		return Slot{}, fmt.Errorf("annotation %s: %w", slotsAnnotation, ErrDropped)
	}
	return a.now()
}

// create asks the provider for a resource.
func (a *allocation[T, PT]) create(
	ctx context.Context, key string, fn func(context.Context, string) (string, error),
) (value string, err error) {
	if a.find != nil {
		value, found, err := a.find(ctx, key)
		if err != nil {
			return "", fmt.Errorf("cannot find out whether it exists: %w", err)
		}
		if found && value == "" {
			return "", fmt.Errorf("the search: %w", errNoValue)
		}
		if found {
			return value, nil
		}
	}
	if value, err = fn(ctx, key); err == nil && value == "" {
		err = errNoValue
	}
	return value, err
}

// guard calls a user's function, whose panic becomes an error.
func guard(fn func() error) (err error) {
	if p := protect.Call(func() { err = fn() }); p != nil {
		return (*PanicError)(p)
	}
	return err
}
