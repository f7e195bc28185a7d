package alloc

import (
	"errors"
	"fmt"
)

var (
	// ErrNoFinalizer is matched when the object lacks the controller's finalizer, or the finalizer is unknown. The
	// allocated value could then be lost with the object.
	ErrNoFinalizer = errors.New("the object lacks the finalizer of the controller")
	// ErrDropped is matched when the server drops the intent because the schema of the kind lacks the field.
	ErrDropped = errors.New("the server does not store the intent; check that the field is part of the schema")
	// ErrDeleting is matched by an allocation for an object that is being deleted.
	ErrDeleting = errors.New("the object is being deleted")
	// ErrReleasing is matched while the previous value of a slot is not completely released.
	ErrReleasing = errors.New("the former value is still being released")
	// errTwoValues is matched when a provider returned two values for one key.
	errTwoValues = errors.New("another value is recorded")
	// errSuperseded is matched when the server's slot no longer has this intent.
	errSuperseded = errors.New("the intent was superseded")
	// errNoValue is matched when a function returned an empty value without an error.
	errNoValue = errors.New("no value was returned")
	// errInvalidSlot is matched when the name of a slot is not a DNS label.
	errInvalidSlot = errors.New("the name of a slot must be a DNS label")
	// errStale is matched when another process has changed the slot concurrently. The caller may retry.
	errStale = errors.New("the slot was changed concurrently")
)

// Error names the operation, the slot and the object that failed.
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

// OrphanError reports a value that was allocated but not recorded, and which the user must release. Once calls the
// [Discard] function if the key can never be used again: the object is gone or was replaced, or the slot has a higher
// number. It does not do so if another value is recorded under that key. A provider that identifies resources by key
// would release the recorded one.
type OrphanError struct {
	IdempotencyKey string
	Value          string
	Discarded      bool // the Discard function has released it
	Err            error
}

func (e *OrphanError) Error() string {
	what := "is left over"
	if e.Discarded {
		what = "was released"
	}
	return fmt.Sprintf("value %q with idempotency key %s %s: %v", e.Value, e.IdempotencyKey, what, e.Err)
}

func (e *OrphanError) Unwrap() error { return e.Err }

// PanicError reports a panic in a user's function.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
