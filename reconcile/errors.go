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

// guard calls a user's function, whose panic becomes an error.
func guard[T any](fn func() (T, error)) (result T, err error) {
	if p := protect.Call(func() { result, err = fn() }); p != nil {
		return *new(T), (*PanicError)(p)
	}
	return result, err
}

// Error is a reconciliation that failed, as it is logged and listed.
type Error struct {
	Controller string
	Key        Key
	Err        error
}

func (e *Error) Error() string {
	return fmt.Sprintf("cannot reconcile %s with %q: %v", e.Key, e.Controller, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Class is what kind of failure an error is; it decides when the next attempt is made.
type Class string

// The classes of errors.
const (
	Retryable Class = "retryable" // back-off; Retry-After is honoured up to one hour
	Conflict  Class = "conflict"  // somebody else was faster: a short back-off
	Stopped   Class = "stopped"   // terminal, or the attempts are exhausted: nothing until the spec changes
	aborted   Class = "aborted"   // preempted, not leading, stopping: no failure of the reconciler
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

// maxRetryAfter is the longest time that an object waits because an error said so (Retry-After, or a method
// RetryAfter). The server that said so may be fine again long before, or be wrong. Return [After] to wait longer.
const maxRetryAfter = time.Hour

// retryAfter returns how long the server, or anybody else with such a method, asked to wait.
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

// abortCause returns why a context was ended by us and not by the reconciler; nil if it was not.
func abortCause(ctx context.Context) error {
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), ErrDeadline) {
		return nil
	}
	return context.Cause(ctx)
}

// asPanic finds a panic, of a reconciler or of a step of its fiber, in an error.
func asPanic(err error) (value any, stack []byte, ok bool) {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return p.Value, p.Stack, true
	}
	if p, ok := errors.AsType[*flow.PanicError](err); ok {
		return p.Value, p.Stack, true
	}
	return nil, nil, false
}
