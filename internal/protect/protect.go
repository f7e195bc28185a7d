// Package protect calls functions of users, whose panics must not end the program, and tells when one has ended its
// goroutine.
//
//	if p := protect.Call(func() { ok = keep(record) }); p != nil {
//		return fmt.Errorf("cannot filter: panic: %w", p)
//	}
//
// What speaks net/http recovers by itself: http.ErrAbortHandler is passed on there.
package protect

import (
	"fmt"
	"runtime/debug"
)

// Panic is what a function panicked with.
type Panic struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

// Error returns the value and, on the lines below it, the stack. An error that was the value is not unwrapped.
func (p *Panic) Error() string { return fmt.Sprintf("%v\n%s", p.Value, p.Stack) }

// Call calls fn, and returns its panic; nil if it returned. runtime.Goexit in fn cannot be caught: it ends the
// goroutine, after what is deferred. Call allocates nothing unless fn panics.
func Call(fn func()) (p *Panic) {
	defer func() {
		if v := recover(); v != nil {
			p = &Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	fn()
	return nil
}

// CallOr is Call of a function that may end its goroutine, with runtime.Goexit or FailNow of a test: then it calls
// ended, which is the last thing that the caller can do besides what it deferred.
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
