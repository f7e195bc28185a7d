package observe

import (
	"errors"
	"fmt"
)

// Mistakes in declarations. [Registry.Check] returns them joined, each with its place.
var (
	// ErrNoSource means that no source is declared for an observer's selector.
	ErrNoSource = errors.New("no source is declared for this selector")
	// ErrDuplicateSource means that two sources are declared for one selector.
	ErrDuplicateSource = errors.New("another source is declared for this selector")
	// errTypeMismatch means that the observer takes another type than the source delivers.
	errTypeMismatch = errors.New("observer and source differ in type")
	// errNilFunction means that the function of an observer or source is nil.
	errNilFunction = errors.New("the function is nil")
	// errEmptySelector means that the selector has no name.
	errEmptySelector = errors.New("the selector is empty")
	// errUnknownType means that the type is not registered in the host's scheme.
	errUnknownType = errors.New("the type is not registered in the scheme")
	// ErrMalformedSelector means that a label or field selector of a source cannot be parsed.
	ErrMalformedSelector = errors.New("malformed selector")
	// errCycle means that a derived source depends on itself.
	errCycle = errors.New("the source is derived from itself")
)

// Errors of a Registry and of the functions that it runs.
var (
	// errStarted means that Start was called before. A Registry can be started once.
	errStarted = errors.New("it has been started already")
	// ErrStopped means that the Registry was stopped, possibly during its start.
	ErrStopped = errors.New("the observers were stopped")
	// ErrNotRunning means that the source of a Collection has not started or has stopped.
	ErrNotRunning = errors.New("the source is not running")
	// errFixed means that SetNamespaces was called on a derived source, which has the namespaces of its inputs.
	errFixed = errors.New("a derived source has no namespaces of its own")

	errGoexit = errors.New("the function ended its goroutine (runtime.Goexit)")
)

// declarationError is one mistake in a declaration, with its place.
type declarationError struct {
	// What names the kind of declaration: "source" or "observer".
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

// panicError is a recovered panic of an observer.
type panicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error returns the panic value. The stack is logged separately.
func (e *panicError) Error() string { return fmt.Sprintf("observer panicked: %v", e.Value) }
