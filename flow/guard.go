package flow

import (
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// guard calls user code; a panic of it is a *PanicError. Others than the worker that runs the fiber may call it, too.
func (f *fiber) guard(fn func() error) (err error) {
	if p := protect.Call(func() { err = fn() }); p != nil {
		return &PanicError{Path: f.whereabouts(), Key: f.root().key, Value: p.Value, Stack: p.Stack}
	}
	return err
}

// inPath adds the path to err once: errors of children and cancellations carry theirs.
func (f *fiber) inPath(err error) error {
	switch err.(type) {
	case *StepError, *ForkError, *cancelError:
		return err
	}
	return &StepError{Path: f.path(), Key: f.root().key, Err: f.printable(err)}
}

// printable returns err, or the panic of its Error method, such as that of a nil pointer in an error. Later, when the
// end of a fiber is printed, such a panic would hit code that does not expect it.
func (f *fiber) printable(err error) error {
	if p := protect.Call(func() { _ = err.Error() }); p != nil {
		value := fmt.Sprintf("Error method of a %T: %v", err, p.Value)
		return &PanicError{Path: f.whereabouts(), Key: f.root().key, Value: value, Stack: p.Stack}
	}
	return err
}

// is is errors.Is, which calls methods of err: one that panics says no.
func (f *fiber) is(err, target error) (yes bool) {
	_ = f.guard(func() error { yes = errors.Is(err, target); return nil })
	return yes
}
