package flow

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// guard calls user code; a panic of it is a *PanicError. Others than the worker that runs the fiber may call it, too.
func (f *fiber) guard(fn func() error) (err error) {
	defer f.caught(&err)
	return fn()
}

// caught turns a panic into an error. It is deferred.
func (f *fiber) caught(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Path: f.whereabouts(), Key: f.root().key, Value: v, Stack: debug.Stack()}
	}
}

// inPath adds the path to err once: errors of children and cancellations carry theirs.
func (f *fiber) inPath(err error) error {
	switch err.(type) {
	case *StepError, *ForkError, *CancelError:
		return err
	}
	return &StepError{Path: f.path(), Key: f.root().key, Err: f.printable(err)}
}

// printable returns err, or the panic of its Error method, such as that of a nil pointer in an error. Later, when the
// end of a fiber is printed, such a panic would hit code that does not expect it.
func (f *fiber) printable(err error) (out error) {
	defer func() {
		if v := recover(); v != nil {
			out = &PanicError{
				Path: f.whereabouts(), Key: f.root().key, Value: fmt.Sprintf("Error method of a %T: %v", err, v),
				Stack: debug.Stack(),
			}
		}
	}()
	_ = err.Error()
	return err
}

// is is errors.Is, which calls methods of err: one that panics says no.
func (f *fiber) is(err, target error) (yes bool) {
	_ = f.guard(func() error { yes = errors.Is(err, target); return nil })
	return yes
}
