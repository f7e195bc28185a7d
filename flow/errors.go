package flow

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalid is wrapped by every error of [Flow.Err], and by errors of Start about invalid arguments.
	ErrInvalid = errors.New("invalid flow")
	// ErrClosed is the cause of fibers that Close cancels. Start returns it after Close or Drain.
	ErrClosed = errors.New("engine is closed")
	// ErrBusy is returned by Start with SkipIfBusy while a fiber of the key is alive.
	ErrBusy = errors.New("a fiber of this key is alive")
	// ErrNotCurrent is returned by Start with IfCurrent when the given fiber is no longer the newest of its key.
	ErrNotCurrent = errors.New("fiber is not the current one of its key")
	// ErrCancelled is matched by the error of every cancelled fiber, along with the cause.
	ErrCancelled = errors.New("fiber cancelled")
	// ErrPreempted is the cause of a fiber that a newer fiber of the key has preempted.
	ErrPreempted = errors.New("preempted by a newer fiber of the key")
	// ErrCoalesced is the cause of a fiber that a newer fiber of its key replaced before it began.
	ErrCoalesced = errors.New("replaced, before it started, by a newer fiber of the key")
	// ErrInterrupted is wrapped by a cause of cancellation after which the work continues later or in another process.
	// A durable fiber then keeps its position, as it does with ErrClosed.
	ErrInterrupted = errors.New("interrupted, to be resumed")
	// ErrMoved is a cause of cancellation after which another process continues the work. The fiber ends as Moved.
	ErrMoved = fmt.Errorf("moved to another process: %w", ErrInterrupted)
	// ErrNotDurable is returned by Start without Positions on a durable engine; see [Engine.Inherit].
	ErrNotDurable = errors.New("objects are shared among processes, which only fibers with Positions can move between")
	// ErrFinal is wrapped by errors after which a step is not retried, even if it has a Retry option.
	ErrFinal = errors.New("not to be tried again")
	// ErrOvertaken is returned by [Positions].Save when the stored position of the key is newer than the one that the
	// fiber loaded. The fiber then ends as cancelled with this cause, and does not change the stored position.
	ErrOvertaken = fmt.Errorf("another fiber of this key has saved a newer position: %w", ErrInterrupted)
	// errNotNeeded is the cause of children that their fork no longer needs.
	errNotNeeded = errors.New("no longer needed by its fork")
	// ErrTimeout is matched when an await times out, or when the deadline of a step or of a fiber passes.
	ErrTimeout = errors.New("timed out")
	// errStaleToken fails a step that suspends on a token other than its latest one.
	errStaleToken = errors.New("token is stale")
	// errUnknownStep fails a step that goes to a step that does not exist.
	errUnknownStep = errors.New("unknown step")
	// errNoOutcome fails a step that returns the zero Next.
	errNoOutcome = errors.New("step returned the zero Next")
	// errGoexit fails a step that ends its goroutine, as FailNow of a test does.
	errGoexit = errors.New("step ended its goroutine")
	// errTooDeep fails a fork nested deeper than maxDepth, such as a flow that forks itself without end.
	errTooDeep = errors.New("forks are nested too deeply")
	// ErrEnded is returned by Fenced for a fiber that has ended.
	ErrEnded = errors.New("fiber has ended")
	// ErrStuck is wrapped by the error of a Close whose context ended before all fibers did.
	ErrStuck = errors.New("fibers did not stop")
)

var (
	errFiberLate = fmt.Errorf("deadline of the fiber: %w", ErrTimeout)
	errDeadline  = fmt.Errorf("deadline of the step: %w", ErrTimeout)
)

// errParked ends the context of a step whose fiber parked.
var errParked = errors.New("fiber has parked: the context of a step ends with it")

// StepError is an error with the path of its step, as in "bring-up/managed-servers[3]/wait-ready: pod is gone".
type StepError struct {
	Path string
	Key  string // of the fiber, or of the root fiber that forked it
	Err  error
}

func (e *StepError) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// PanicError is a panic of user code.
type PanicError struct {
	Path  string // of the step
	Key   string // of the fiber
	Value any    // the argument of panic
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ForkError is the error of a failed fork. It has the errors of the children. Each is a *StepError, or a cancellation
// with its path.
type ForkError struct {
	Path  string // of the fork
	Key   string // of the fiber
	Total int    // number of children
	Errs  []error
}

func (e *ForkError) Error() string {
	if len(e.Errs) == 1 {
		return e.Errs[0].Error()
	}
	texts := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		texts[i] = err.Error()
	}
	return fmt.Sprintf("%s: %d of %d children failed: %s", e.Path, len(e.Errs), e.Total, strings.Join(texts, "; "))
}

func (e *ForkError) Unwrap() []error { return e.Errs }

// cancelError is the error of a cancelled fiber. It matches ErrCancelled and the cause.
type cancelError struct {
	Path  string // of the step where the fiber was cancelled
	Key   string // of the fiber
	Cause error
}

func (e *cancelError) Error() string   { return e.Path + ": cancelled: " + e.Cause.Error() }
func (e *cancelError) Unwrap() []error { return []error{ErrCancelled, e.Cause} }

// SavedError is the result of Fiber.Err after a restart. The position keeps only the text of the error, and whether it
// matched ErrTimeout.
type SavedError struct {
	Text     string // at most about 1 KB
	TimedOut bool
}

func (e *SavedError) Error() string { return e.Text }

// Is reports whether target is ErrTimeout and the saved error matched it.
func (e *SavedError) Is(target error) bool { return e.TimedOut && target == ErrTimeout }

// maxError is the maximum length of a saved or traced error text, in bytes.
const maxError = 1024

// brief truncates a text to maxError bytes, to keep positions and spans small.
func brief(text string) string {
	if len(text) <= maxError {
		return text
	}
	return strings.ToValidUTF8(text[:maxError], "") + "…"
}
