package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/protect"
)

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guard calls a user's function and turns its panic into an error.
func guard[T any](fn func() (T, error)) (result T, err error) {
	if p := protect.Call(func() { result, err = fn() }); p != nil {
		return *new(T), (*PanicError)(p)
	}
	return result, err
}

// Error is the error of a failed reconciliation, as the controller logs and lists it.
type Error struct {
	Controller string
	Key        Key
	Err        error
}

func (e *Error) Error() string {
	return fmt.Sprintf("cannot reconcile %s with %q: %v", e.Key, e.Controller, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Class is the class of an error. It decides when the next attempt is made.
type Class string

// The classes of errors.
const (
	Retryable Class = "retryable" // back-off; Retry-After is honored up to one hour
	Conflict  Class = "conflict"  // another client wrote first: a short back-off
	Stopped   Class = "stopped"   // terminal, or the attempts are exhausted: no retry until the spec changes
	aborted   Class = "aborted"   // preempted, not leading, or stopping: not a failure of the reconciler
)

func classify(err error) Class {
	switch {
	case errors.Is(err, ErrTerminal):
		return Stopped
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), errors.Is(err, client.ErrTooManyConflicts),
		errors.Is(err, client.ErrReplaced):
		return Conflict
	}
	return Retryable
}

// maxRetryAfter bounds the wait that an error asks for, with Retry-After or a method RetryAfter. The server may recover
// earlier, or be wrong. A reconciler returns [After] to wait longer.
const maxRetryAfter = time.Hour

// retryAfter returns how long the server, or an error with a method RetryAfter, asks to wait.
func retryAfter(err error) time.Duration {
	var own interface{ RetryAfter() time.Duration }
	if errors.As(err, &own) {
		return min(own.RetryAfter(), maxRetryAfter)
	}
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(min(s, int(maxRetryAfter/time.Second))) * time.Second
	}
	return 0
}

// abortCause returns the cause if the controller ended the context, and nil otherwise. A deadline does not count.
func abortCause(ctx context.Context) error {
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), ErrDeadline) {
		return nil
	}
	return context.Cause(ctx)
}

// asPanic finds the panic of a reconciler, or of a step of its fiber, in an error.
func asPanic(err error) (value any, stack []byte, ok bool) {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return p.Value, p.Stack, true
	}
	if p, ok := errors.AsType[*flow.PanicError](err); ok {
		return p.Value, p.Stack, true
	}
	return nil, nil, false
}

// Failure is an object whose last reconciliation failed.
type Failure struct {
	Controller string
	Key        Key
	Class      Class
	Err        error // *Error
	Attempts   int   // since the last success, or the last change of the spec
	Since      time.Time
	At         time.Time // of the last attempt
	Next       time.Time // of the next attempt; zero if none is scheduled, or if a fiber is running
}
