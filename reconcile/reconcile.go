package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
)

// Key identifies an object; Namespace is empty for a cluster-scoped one.
type Key = cache.Key

// Reconciler brings the world to the state that an object describes.
//
// obj is the reconciler's own copy of the freshest known state, including its own writes. The reconciler may change and
// keep it. The [Result] says when Reconcile is called again without an event; changes always lead to another call.
//
// ctx ends at the deadline, when leadership is lost, when a newer event preempts the call, and when the host stops. The
// client sends no request with ctx after that, nor after Reconcile has returned.
type Reconciler[T any] interface {
	Reconcile(ctx context.Context, obj *T) (Result, error)
}

// Func adapts a function to a Reconciler.
type Func[T any] func(ctx context.Context, obj *T) (Result, error)

// Reconcile implements Reconciler.
func (f Func[T]) Reconcile(ctx context.Context, obj *T) (Result, error) { return f(ctx, obj) }

// Cleaner is a Reconciler that must clean up before its object is removed. The controller adds a finalizer before the
// first Reconcile. Once the object is being deleted, it calls Cleanup instead of Reconcile. It removes the finalizer
// when Cleanup returns Done and no error; otherwise it calls Cleanup again.
type Cleaner[T any] interface {
	Reconciler[T]
	Cleanup(ctx context.Context, obj *T) (Result, error)
}

// Result says when an object is reconciled again without an event. It is [Done], or is made by [After]. The last result
// replaces the time of an earlier one. If Reconcile also returns an error, the error decides: see [Retry].
type Result struct {
	after   time.Duration
	requeue bool // After(d) with d <= 0
	pending bool // the fiber is still running; its outcome counts
	ignored bool // it did not look at the object; the events that this state covers come again
}

// Done is the result of a reconciliation that needs no further call until an event.
var Done Result

// After returns a result that asks for another reconciliation after d, at least a millisecond.
//
// If d is zero, the next reconciliation comes after the back-off of failures (see [WithBackoff]). The back-off grows
// with each such result in a row. It starts over when the spec changes or another result is returned. An event leads to
// an earlier call. A negative d, from a time in the past, has the same effect and is logged as an error.
func After(d time.Duration) Result {
	if d <= 0 {
		return Result{after: d, requeue: true}
	}
	return Result{after: max(d, minAfter)}
}

// minAfter is the minimum delay of After.
const minAfter = time.Millisecond

// Retry fails a reconciliation. The controller retries after a back-off, or after the Retry-After of the server.
// Returning the error with any other result has the same effect. With [After], the next attempt also comes no earlier
// than that time. If err is nil, the result is Done.
//
//	if err != nil { return reconcile.Retry(err) }
func Retry(err error) (Result, error) { return Done, err }

// Terminal fails a reconciliation permanently. The controller records the error and does not retry until the spec of
// the object changes, even if the result is [After]. The error matches [ErrTerminal]. If err is nil, the result is
// Done.
func Terminal(err error) (Result, error) {
	if err == nil {
		return Done, nil
	}
	return Done, &terminalError{err}
}

type terminalError struct{ err error }

func (e *terminalError) Error() string   { return e.err.Error() }
func (e *terminalError) Unwrap() []error { return []error{e.err, ErrTerminal, flow.ErrFinal} }

// Leadership is the leader election of a controller. Package lease implements it.
type Leadership interface {
	// Lead waits until this process leads. It returns a context that ends when leadership is lost. The controller calls
	// done when all work of that term has ended. If ctx ends first, Lead returns an error. Any other error ends the host.
	Lead(ctx context.Context) (term context.Context, done func(), err error)
	// Fence returns nil while it is certain that this term still leads. It is called before each request.
	Fence(term context.Context) error
}

var (
	// ErrTerminal is matched by errors after which the controller does not retry until the spec changes.
	ErrTerminal = errors.New("terminal")
	// ErrExhausted is matched when [MaxAttempts] is reached.
	ErrExhausted = errors.New("attempts exhausted")
	// ErrPreempted is the cause that cancels a reconciliation when a newer event preempts it.
	ErrPreempted = errors.New("preempted by a newer event")
	// ErrDeadline is the cause that cancels a reconciliation at its [Deadline].
	ErrDeadline = errors.New("deadline of the reconciliation exceeded")
	// errReturned refuses requests with the context of a reconciliation that has returned.
	errReturned = errors.New("the reconciliation has returned")
	// errGoexit is the error of a reconciler that called runtime.Goexit.
	errGoexit = errors.New("the reconciler ended its goroutine")
	// ErrInvalid is matched by the errors of a declaration.
	ErrInvalid = errors.New("invalid controller")
	// ErrEngineClosed is matched by the error of a controller of [Flow] whose engine was closed while it worked.
	ErrEngineClosed = errors.New("the engine of its flows was closed before the controller has stopped")
	// errNotRunning is matched by calls that need a running controller.
	errNotRunning = errors.New("the controller is not running")
)

// PanicError is the error of a user's function that panicked.
type PanicError struct {
	Value any
	Stack []byte
}
