package flow

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// guard calls user code of f and returns a panic as a *PanicError. Goroutines other than the worker of the fiber may
// call it, too.
func guard(f *fiber, fn func() error) (err error) {
	if p := protect.Call(func() { err = fn() }); p != nil {
		return &PanicError{Path: f.whereabouts(), Key: f.root().key, Value: p.Value, Stack: p.Stack}
	}
	return err
}

// inPath adds the path of f to err, unless err has one already, as errors of children and cancellations do.
func inPath(f *fiber, err error) error {
	switch err.(type) {
	case *StepError, *ForkError, *cancelError:
		return err
	}
	return &StepError{Path: f.path(), Key: f.root().key, Err: printable(f, err)}
}

// printable returns err, or a *PanicError if its Error method panics, as that of a nil pointer does. The check is done
// here because code that prints the error later does not expect a panic.
func printable(f *fiber, err error) error {
	if p := protect.Call(func() { _ = err.Error() }); p != nil {
		value := fmt.Sprintf("Error method of a %T: %v", err, p.Value)
		return &PanicError{Path: f.whereabouts(), Key: f.root().key, Value: value, Stack: p.Stack}
	}
	return err
}

// matches calls errors.Is, which calls methods of err. It returns false if one of them panics.
func matches(err, target error) (yes bool) {
	_ = protect.Call(func() { yes = errors.Is(err, target) })
	return yes
}

// logPanic logs a panic outside a step: of a callback, or of the stop function of a wait.
func logPanic(log *slog.Logger, f *fiber, err error) {
	var stack []byte
	if p, ok := err.(*PanicError); ok {
		stack = p.Stack
	}
	log.Error("panic outside of a step", "path", f.path(), "key", f.root().key, "error", err, "stack", string(stack))
}
