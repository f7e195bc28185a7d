package binding

import (
	"sync/atomic"
	"time"
)

// Waiting shows a call that is being retried, to diagnose why an operation does not proceed. Calls receive it in their
// call.Policy. Of several concurrent calls, it shows the last one that failed. The zero value is ready to use. Waiting
// is safe for concurrent use, must not be copied, and has no cost unless a try fails.
type Waiting struct{ last atomic.Pointer[Retried] }

// Retried describes a call whose last try failed and which will be retried.
type Retried struct {
	Err   error     // of the tries so far; read-only
	Since time.Time // when the call began
	Until time.Time // when the next try is due; if past, the try is in progress
}

// Last returns the call that is being retried; false if there is none.
func (w *Waiting) Last() (Retried, bool) {
	if w == nil {
		return Retried{}, false
	}
	if r := w.last.Load(); r != nil {
		return *r, true
	}
	return Retried{}, false
}

// Begin records that a call will be retried.
func (w *Waiting) Begin(r *Retried) { w.last.Store(r) }

// End removes the record of a call, unless another call has replaced it.
func (w *Waiting) End(r *Retried) { w.last.CompareAndSwap(r, nil) }
