package alloc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/client"
)

// Option tunes Once and Release. What they are told must be the same for both.
type Option func(*options)

type options struct {
	finalizer string
	unguarded bool
	find      func(ctx context.Context, key string) (value string, found bool, err error)
	discard   func(ctx context.Context, key, value string) error
}

// Find gives a function that looks for a resource by its idempotency key, for providers that do not honour keys but can keep them,
// as a tag for example. It is asked before something is created.
func Find(fn func(ctx context.Context, key string) (value string, found bool, err error)) Option {
	return func(o *options) { o.find = fn }
}

// Discard gives a function that gives back a value that cannot be recorded any more; see OrphanError. It may be called for
// a value that was given back before.
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

// recordTimeout bounds how long it is tried to record a value after the context has ended.
const recordTimeout = 15 * time.Second

// allocation is one call of Once or Release.
type allocation[T any, PT client.ObjectOf[T]] struct {
	options
	op   string
	c    *client.Client
	obj  PT
	slot string
}

func begin[T any, PT client.ObjectOf[T]](ctx context.Context, op string, c *client.Client, obj PT, slot string, opts []Option) *allocation[T, PT] {
	a := &allocation[T, PT]{op: op, c: c, obj: obj, slot: slot}
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

// read returns what a reader shows of the object.
func (a *allocation[T, PT]) read(ctx context.Context, from client.Reader) (PT, Slot, error) {
	fresh := PT(new(T))
	fresh.GetObjectKind().SetGroupVersionKind(a.obj.GetObjectKind().GroupVersionKind())
	if err := from.Get(ctx, client.KeyOf(a.obj), fresh); err != nil {
		return nil, Slot{}, err
	}
	if want := a.obj.GetUID(); want != "" && want != fresh.GetUID() {
		return nil, Slot{}, fmt.Errorf("%w: it has uid %s now", client.ErrReplaced, fresh.GetUID())
	}
	slots, _, err := slotsOf(fresh)
	return fresh, slots[a.slot], err
}

// modify changes the slot with optimistic locking. obj is what the server has answered, afterwards.
func (a *allocation[T, PT]) modify(ctx context.Context, fn func(PT, *Slot) error) error {
	change := func(o PT) error {
		slots, _, err := slotsOf(o)
		if err != nil {
			return err
		}
		was := slots[a.slot]
		s := was
		if err := fn(o, &s); err != nil || s == was {
			return err
		}
		return setSlot(o, a.slot, s)
	}
	if _, ok := statusField(a.obj, false); ok {
		return client.ModifyStatus(ctx, a.c, a.obj, change)
	}
	return client.Modify(ctx, a.c, a.obj, change)
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
// idempotency key and may be called again with the same key after a crash, an error, or a lost answer: it has to return the
// resource of the first call then, or Find has to. What it returns is seen by the next read of the client.
//
// Once fails before create is called if the server does not keep the intent (ErrDropped), the controller's finalizer is not on
// the object (ErrNoFinalizer), or the object is being deleted (ErrDeleting). obj is brought up to date when something is
// written. It is safe for concurrent use with different objs.
func Once[T any, PT client.ObjectOf[T]](ctx context.Context, c *client.Client, obj PT, slot string, create func(ctx context.Context, key string) (string, error), opts ...Option) (string, error) {
	a := begin(ctx, "allocate", c, obj, slot, opts)
	if err := a.check(create == nil); err != nil {
		return "", a.fail(err)
	}
	if len(validation.IsDNS1123Label(slot)) > 0 {
		return "", a.fail(ErrInvalidSlot)
	}
	_, s, err := a.read(ctx, c)
	if err != nil {
		return "", a.fail(err)
	}
	if s.Value != "" && !s.Releasing {
		return s.Value, nil
	}
	s, err = a.intend(ctx)
	if err != nil {
		return "", a.fail(err)
	}
	if s.Value != "" { // somebody was faster
		return s.Value, nil
	}
	value, err := a.create(ctx, s.Key, create)
	if err != nil {
		return "", a.fail(err)
	}
	if err := a.record(ctx, s.Key, value); err != nil {
		return "", a.fail(err)
	}
	return value, nil
}

// intend makes sure that the server has an intent, and returns it, or the value that is there.
func (a *allocation[T, PT]) intend(ctx context.Context) (Slot, error) {
	wrote := ""
	err := a.modify(ctx, func(o PT, s *Slot) error {
		wrote = ""
		if s.Releasing {
			return ErrReleasing
		}
		if s.Value != "" {
			return nil
		}
		if err := a.guarded(o); err != nil {
			return err
		}
		if s.Key == "" {
			s.Key = keyOf(o.GetUID(), a.slot, s.Released)
			s.Since = &metav1.Time{Time: time.Now().UTC().Truncate(time.Second)}
			wrote = s.Key
		}
		return nil
	})
	if err != nil {
		return Slot{}, err
	}
	if wrote != "" {
		slots, _, err := slotsOf(a.obj)
		if err != nil {
			return Slot{}, err
		}
		s := slots[a.slot]
		if s.Key != wrote {
			return Slot{}, ErrDropped
		}
		return s, a.guarded(a.obj)
	}
	// The intent of an earlier call. What shows it may be out of date: only the server knows whether it still holds.
	live, s, err := a.read(ctx, a.c.Live())
	switch {
	case err != nil:
		return Slot{}, err
	case s.Releasing:
		return Slot{}, ErrReleasing
	case s.Value != "":
		return s, nil
	case s.Key == "":
		return Slot{}, ErrStale
	}
	return s, a.guarded(live)
}

// create asks the provider for a resource.
func (a *allocation[T, PT]) create(ctx context.Context, key string, fn func(context.Context, string) (string, error)) (value string, err error) {
	defer recovered(&err)
	if a.find != nil {
		value, found, err := a.find(ctx, key)
		if err != nil {
			return "", fmt.Errorf("cannot find out whether it exists: %w", err)
		}
		if found && value == "" {
			return "", fmt.Errorf("the search: %w", ErrNoValue)
		}
		if found {
			return value, nil
		}
	}
	if value, err = fn(ctx, key); err == nil && value == "" {
		err = ErrNoValue
	}
	return value, err
}

// record puts the value into its slot, although ctx may have ended meanwhile: what was made should be known.
func (a *allocation[T, PT]) record(ctx context.Context, key, value string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	err := a.modify(ctx, func(_ PT, s *Slot) error {
		switch {
		case s.Key != key || s.Releasing:
			return ErrSuperseded
		case s.Value != "" && s.Value != value:
			return fmt.Errorf("%w: %q", ErrTwoValues, s.Value)
		}
		s.Value = value
		return nil
	})
	if err == nil {
		return nil
	}
	lost := errors.Is(err, ErrSuperseded) || errors.Is(err, ErrTwoValues) || errors.Is(err, client.ErrReplaced) || apierrors.IsNotFound(err)
	if !lost {
		return fmt.Errorf("cannot record the value: %w", err)
	}
	orphan := &OrphanError{IdempotencyKey: key, Value: value, Err: err}
	if a.discard != nil {
		if e := protect(func() error { return a.discard(ctx, key, value) }); e != nil {
			orphan.Err = errors.Join(err, fmt.Errorf("cannot give it back: %w", e))
		} else {
			orphan.Discarded = true
		}
	}
	return orphan
}

func protect(fn func() error) (err error) {
	defer recovered(&err)
	return fn()
}

func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}
