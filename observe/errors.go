package observe

import (
	"errors"
	"fmt"
)

// Mistakes in declarations. [Registry.Check] returns them joined, each with its place.
var (
	// ErrNoSource: an observer's selector is declared by no source.
	ErrNoSource = errors.New("no source is declared for this selector")
	// ErrDuplicateSource: two sources are declared for one selector.
	ErrDuplicateSource = errors.New("another source is declared for this selector")
	// errTypeMismatch: the observer takes another type than the source delivers.
	errTypeMismatch = errors.New("observer and source differ in type")
	// errNilFunction: the function of an observer or source is nil.
	errNilFunction = errors.New("the function is nil")
	// errEmptySelector: the selector has no name.
	errEmptySelector = errors.New("the selector is empty")
	// errUnknownType: the type is not registered in the host's scheme.
	errUnknownType = errors.New("the type is not registered in the scheme")
	// ErrMalformedSelector: a label or field selector of a source cannot be parsed.
	ErrMalformedSelector = errors.New("malformed selector")
	// errCycle: a derived source is made from itself.
	errCycle = errors.New("the source is derived from itself")
)

// Errors of a Registry and what it runs.
var (
	// errStarted: a Registry can be started once.
	errStarted = errors.New("it has been started already")
	// ErrStopped: the Registry was stopped, perhaps while it was starting.
	ErrStopped = errors.New("observers were stopped")
	// ErrNotRunning: the source of a Collection has not been started, or is not any more.
	ErrNotRunning = errors.New("the source is not running")
	// errFixed: the namespaces of a derived source are those of its inputs.
	errFixed = errors.New("a derived source has no namespaces of its own")

	errGoexit = errors.New("the function ended its goroutine (runtime.Goexit)")
)

// declarationError is one mistake in a declaration, with the place of it.
type declarationError struct {
	// What is "source" or "observer".
	What string
	// Selector is the selector of the declaration.
	Selector Selector
	// Place is file:line of the declaration.
	Place string
	// Err is the mistake, one of the sentinels above.
	Err error
}

// Error returns the mistake with its place first.
func (e *declarationError) Error() string {
	return fmt.Sprintf("%s: cannot declare %s %q: %v", e.Place, e.What, e.Selector, e.Err)
}

// Unwrap returns the mistake.
func (e *declarationError) Unwrap() error { return e.Err }

// panicError is a panic of an observer, caught and reported.
type panicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error returns the value; the stack is for logs.
func (e *panicError) Error() string { return fmt.Sprintf("observer panicked: %v", e.Value) }
