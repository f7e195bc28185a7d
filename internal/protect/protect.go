// Package protect calls user functions whose panics must not end the program. It returns a panic as an error.
//
//	if p := protect.Call(func() { ok = keep(record) }); p != nil {
//		return fmt.Errorf("cannot filter: panic: %w", p)
//	}
//
// HTTP handlers recover panics themselves, because they must pass http.ErrAbortHandler on to net/http.
package protect

import (
	"fmt"
	"runtime/debug"
)

// Panic is a recovered panic.
type Panic struct {
	Value any    // what was passed to panic
	Stack []byte // stack of the goroutine that panicked
}

// Error returns the value and, on the following lines, the stack. If the value is an error, Panic does not unwrap to
// it.
func (p *Panic) Error() string { return fmt.Sprintf("%v\n%s", p.Value, p.Stack) }

// Call calls fn and returns its panic, or nil. It cannot catch runtime.Goexit in fn, which ends the goroutine after the
// deferred calls. Call allocates only if fn panics.
func Call(fn func()) (p *Panic) {
	defer func() {
		if v := recover(); v != nil {
			p = &Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	fn()
	return nil
}

// CallOr is Call for a function that may end its goroutine, with runtime.Goexit or FailNow of a test. It then calls
// ended, after which only deferred calls of the caller run.
func CallOr(fn, ended func()) (p *Panic) {
	returned := false
	defer func() {
		if !returned {
			ended()
		}
	}()
	p = Call(fn)
	returned = true
	return p
}
