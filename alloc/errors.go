package alloc

import (
	"errors"
	"fmt"
)

var (
	// ErrNoFinalizer is matched when the controller's finalizer is not on the object, or not known: what would be
	// allocated could be lost with the object.
	ErrNoFinalizer = errors.New("the finalizer of the controller is not there")
	// ErrDropped is matched when the server does not keep the intent: its schema lacks the field, which it prunes.
	ErrDropped = errors.New("the server does not keep the intent: is the field part of the schema?")
	// ErrDeleting is matched when something is to be allocated for an object that is being deleted.
	ErrDeleting = errors.New("the object is being deleted")
	// ErrReleasing is matched when the former value of a slot has not been given back completely.
	ErrReleasing = errors.New("the former value is still being released")
	// errTwoValues is matched when a provider returned two values for one key, against its promise.
	errTwoValues = errors.New("another value is recorded")
	// errSuperseded is matched when an intent is not the one of the slot any more, as the server has said.
	errSuperseded = errors.New("the intent was superseded")
	// errNoValue is matched when a function returned an empty value without an error.
	errNoValue = errors.New("no value was returned")
	// errInvalidSlot is matched when the name of a slot is not a DNS label.
	errInvalidSlot = errors.New("the name of a slot has to be a DNS label")
	// errStale is matched when another process has changed the slot in between. Try again.
	errStale = errors.New("the slot was changed in between")
)

// Error says which slot of which object is concerned.
type Error struct {
	Op   string // allocate, release
	Slot string
	Kind string
	Key  string // namespace/name
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("cannot %s %q of %s %s: %v", e.Op, e.Slot, e.Kind, e.Key, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// OrphanError is a value that was allocated and is not recorded: somebody has to give it back. [Discard] is called
// where its key can never be used again, for the object is another one, or the slot has a higher number. It is not
// where another value is recorded under that key: a provider that goes by keys would take that one.
type OrphanError struct {
	IdempotencyKey string
	Value          string
	Discarded      bool // the function given by Discard has given it back
	Err            error
}

func (e *OrphanError) Error() string {
	what := "is left over"
	if e.Discarded {
		what = "was given back"
	}
	return fmt.Sprintf("value %q with idempotency key %s %s: %v", e.Value, e.IdempotencyKey, what, e.Err)
}

func (e *OrphanError) Unwrap() error { return e.Err }

// PanicError is a panic of a user's function.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
