package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
)

// Key names an object; Namespace is empty for a cluster-scoped one.
type Key = cache.Key

// Reconciler brings the world to what an object asks for.
//
// obj is the reconciler's own copy of the freshest state that is known, own writes included: it may be changed and
// kept. What Reconcile returns says when it is to be called again, see [Result]; nothing has to be returned for
// changes, which lead to another call by themselves. ctx ends at the deadline, when leadership is lost, when a newer
// event preempts the call, and when the host stops; after that, and after Reconcile has returned, no request is sent
// with it any more.
type Reconciler[T any] interface {
	Reconcile(ctx context.Context, obj *T) (Result, error)
}

// Func makes a Reconciler of a function.
type Func[T any] func(ctx context.Context, obj *T) (Result, error)

// Reconcile implements Reconciler.
func (f Func[T]) Reconcile(ctx context.Context, obj *T) (Result, error) { return f(ctx, obj) }

// Cleaner is a Reconciler that has to clean up before an object may be gone. Its finalizer is added before the first
// Reconcile, and removed when Cleanup, which is called instead of Reconcile once the object is being deleted, returns
// Done without an error. Anything else keeps the finalizer, and Cleanup is called again.
type Cleaner[T any] interface {
	Reconciler[T]
	Cleanup(ctx context.Context, obj *T) (Result, error)
}

// Result says when an object is reconciled again if nothing changes: Done or what After returns. The last result
// counts; it replaces the time that an earlier one asked for. Beside an error the error decides: see [Retry].
type Result struct {
	after   time.Duration
	requeue bool // After was given nothing to wait for
	pending bool // a fiber is at work; its end is that of the reconciliation
}

// Done is the result of a reconciliation after which nothing is left to do until something changes.
var Done Result

// After is the result that asks for another reconciliation after a while, at least a millisecond.
//
// Zero asks for one as soon as it is reasonable: after a back-off, that of failures (see [WithBackoff]), which grows
// with each such result in a row and begins anew when the spec changes or another result is returned. An event does not
// wait for it. A negative duration, as of a time that has passed, does the same and is logged as an error.
func After(d time.Duration) Result {
	if d <= 0 {
		return Result{after: d, requeue: true}
	}
	return Result{after: max(d, minAfter)}
}

// minAfter is the least time between a reconciliation and the next one that it asks for.
const minAfter = time.Millisecond

// Retry fails a reconciliation: it is made again after a back-off, or after what the server asked for (Retry-After).
// Returning the error with any other result does the same; with [After] the next attempt comes, besides, no sooner than
// that. A nil error is Done.
//
//	if err != nil { return reconcile.Retry(err) }
func Retry(err error) (Result, error) { return Done, err }

// Terminal fails a reconciliation for good: the error is recorded, and nothing is tried until the spec of the object
// changes, nor at the time of an [After] that is returned with it. The error matches ErrTerminal. A nil error is Done.
func Terminal(err error) (Result, error) {
	if err == nil {
		return Done, nil
	}
	return Done, &terminalError{err}
}

type terminalError struct{ err error }

func (e *terminalError) Error() string   { return e.err.Error() }
func (e *terminalError) Unwrap() []error { return []error{e.err, ErrTerminal, flow.ErrFinal} }

// Leadership says whether this process may act. Package lease has one.
type Leadership interface {
	// Lead waits until this process leads and returns a context that ends when it does no more; done is called when all
	// work of that term has ended. An error if ctx ends first; any other error ends the host.
	Lead(ctx context.Context) (term context.Context, done func(), err error)
	// Fence returns nil while it is certain that no other process leads, and that the term was not lost. It is asked
	// before each request.
	Fence(term context.Context) error
}

var (
	// ErrTerminal is matched by errors after which nothing is tried until the spec changes.
	ErrTerminal = errors.New("terminal")
	// ErrExhausted is matched when the maximum of attempts was reached.
	ErrExhausted = errors.New("attempts exhausted")
	// ErrPreempted is the cause of the end of a context of a reconciliation that a newer event has overtaken.
	ErrPreempted = errors.New("preempted by a newer event")
	// ErrDeadline is the cause of the end of a context whose reconciliation took too long.
	ErrDeadline = errors.New("deadline of the reconciliation exceeded")
	// errReturned refuses requests made with the context of a reconciliation that has returned.
	errReturned = errors.New("the reconciliation has returned")
	// errGoexit is the error of a reconciler that ended its goroutine.
	errGoexit = errors.New("the reconciler ended its goroutine")
	// ErrInvalid is matched when a controller was declared wrongly.
	ErrInvalid = errors.New("invalid controller")
	// ErrEngineClosed is matched by the end of a controller of [Flow] whose engine was closed while it worked.
	ErrEngineClosed = errors.New("the engine of its flows was closed before the controller has stopped")
	// errNotRunning is matched when a controller is asked for what only a running one can do.
	errNotRunning = errors.New("the controller is not running")
)

// PanicError is a panic of a user's function.
type PanicError struct {
	Value any
	Stack []byte
}
