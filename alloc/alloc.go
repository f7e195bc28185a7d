package alloc

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/protect"
)

// Option configures Once and Release. Pass the same options to both.
type Option func(*options)

type options struct {
	finalizer string
	unguarded bool
	live      bool
	find      func(ctx context.Context, key string) (value string, found bool, err error)
	discard   func(ctx context.Context, key, value string) error
}

// Find sets a function that finds a resource by its idempotency key. It is for providers that do not honour keys but
// can store them, for example as a tag. Once calls it before create.
func Find(fn func(ctx context.Context, key string) (value string, found bool, err error)) Option {
	return func(o *options) { o.find = fn }
}

// Discard sets a function that releases a value that can no longer be recorded; see OrphanError. It may be called for a
// value that was already released.
func Discard(fn func(ctx context.Context, key, value string) error) Option {
	return func(o *options) { o.discard = fn }
}

// Guard names the finalizer that the object must have. Reconcilers of package reconcile set it themselves.
func Guard(finalizer string) Option { return func(o *options) { o.finalizer = finalizer } }

// Unguarded allocates without a finalizer. The allocated value is lost when the object is deleted.
func Unguarded() Option { return func(o *options) { o.unguarded = true } }

type finalizerKey struct{}

// WithFinalizer returns a context whose allocations require the finalizer name.
func WithFinalizer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, finalizerKey{}, name)
}

// Live makes Once confirm a cached value with a read from the server. It is for processes that are neither the leader
// nor the only one that works on the object.
func Live() Option { return func(o *options) { o.live = true } }

// allocation is one call of Once or Release.
type allocation[T any, PT client.ObjectOf[T]] struct {
	options
	op     string
	stored stored[T, PT]
}

func begin[T any, PT client.ObjectOf[T]](
	ctx context.Context, op string, c *client.Client, obj PT, slot string, opts []Option,
) *allocation[T, PT] {
	behind := obj != nil && obj.GetUID() == "" // without a uid, only the server knows the incarnation
	a := &allocation[T, PT]{op: op, stored: stored[T, PT]{c: c, obj: obj, name: slot, behind: behind}}
	a.finalizer, _ = ctx.Value(finalizerKey{}).(string)
	for _, o := range opts {
		if o != nil {
			o(&a.options)
		}
	}
	return a
}

// fail returns err as an error of the call.
func (a *allocation[T, PT]) fail(err error) error {
	obj, name := a.stored.obj, a.stored.name
	if obj == nil {
		return &Error{Op: a.op, Slot: name, Kind: reflect.TypeFor[T]().Name(), Err: err}
	}
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = reflect.TypeFor[T]().Name()
	}
	return &Error{Op: a.op, Slot: name, Kind: kind, Key: client.KeyOf(obj).String(), Err: err}
}

// check validates the arguments of Once and Release.
func (a *allocation[T, PT]) check(noFunction bool) error {
	switch {
	case a.stored.c == nil:
		return client.ErrNotMade
	case a.stored.obj == nil:
		return fmt.Errorf("the object: %w", client.ErrNil)
	case noFunction:
		return fmt.Errorf("the function: %w", client.ErrNil)
	}
	return nil
}

// guarded returns the reason why this state of the object permits no allocation, or nil.
func (a *options) guarded(o client.Object) error {
	switch {
	case o.GetDeletionTimestamp() != nil:
		return ErrDeleting
	case a.unguarded:
		return nil
	case a.finalizer == "":
		return fmt.Errorf("%w: the controller has none; give the reconciler a Cleanup, or use Guard", ErrNoFinalizer)
	case !slices.Contains(o.GetFinalizers(), a.finalizer):
		return fmt.Errorf("%w: %s", ErrNoFinalizer, a.finalizer)
	}
	return nil
}

// Once returns the value of a slot of obj. If there is none, it calls create with an idempotency key. After a crash, an
// error or a lost answer, it may call create again with the same key. Then create, or Find, must return the resource of
// the first call. The next read of the client sees the recorded value.
//
// Once returns a cached value without asking the server. Such a value is as old as the cache, which is sufficient for
// the leader or the only process that works on the object; see [Live]. All other decisions use the server's state.
//
// Once fails before it calls create if the server does not keep the intent (ErrDropped). It also does so if the object
// lacks the controller's finalizer (ErrNoFinalizer) or is being deleted (ErrDeleting). A write updates obj with the
// server's answer. In a step of a flow, create holds a worker unless it waits in flow.Blocking. Once is safe for
// concurrent use with different objs.
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
		if value, ok := a.stored.cached(ctx); ok {
			return value, nil
		}
	}
	s, err := a.intend(ctx)
	if err != nil {
		return "", a.fail(err)
	}
	if s.Value != "" { // another process was faster
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

// intend ensures that the server has an intent and its mark. It returns the intent, or the slot with a value if there
// is one.
func (a *allocation[T, PT]) intend(ctx context.Context) (Slot, error) {
	err := a.stored.change(ctx, inSlot, func(o PT, s *Slot) error {
		switch {
		case s.Releasing, s.Value != "": // restores the slot in a status that was cleared
			return nil
		case s.Key == "":
			s.Key = keyOf(o.GetUID(), a.stored.name, s.Released)
		}
		if s.Since == nil {
			s.Since = &metav1.Time{Time: time.Now().UTC().Truncate(time.Second)}
		}
		return a.guarded(o)
	})
	if err != nil {
		return Slot{}, err
	}
	s, err := a.stored.slot()
	switch {
	case err != nil:
		return Slot{}, err
	case s.Releasing:
		return Slot{}, ErrReleasing
	case s.Value != "":
		return s, nil
	case s.Key == "" || a.stored.at(inSlot).Key != s.Key:
		return Slot{}, ErrDropped
	}
	if a.stored.marked() && a.stored.at(inMark) != markOf(s) {
		if s, err = a.mark(ctx, s); err != nil || s.Value != "" {
			return s, err
		}
	}
	return s, a.guarded(a.stored.obj)
}

// mark writes the mark of an intent and returns the resulting slot.
func (a *allocation[T, PT]) mark(ctx context.Context, want Slot) (Slot, error) {
	err := a.stored.change(ctx, inMark, func(_ PT, s *Slot) error {
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
	if a.stored.at(inMark).Key != want.Key {
		return Slot{}, fmt.Errorf("annotation %s: %w", slotsAnnotation, ErrDropped)
	}
	return a.stored.slot()
}

// create calls Find, if set, and then fn if no resource was found.
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

// guard calls a user's function and converts its panic into an error.
func guard(fn func() error) (err error) {
	if p := protect.Call(func() { err = fn() }); p != nil {
		return (*PanicError)(p)
	}
	return err
}
