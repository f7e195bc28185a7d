package call

import (
	"sync/atomic"
	"time"
)

// Waiting shows a call that is being retried, to diagnose why an operation does not proceed. Calls receive it in their
// Policy. Of several concurrent calls, it shows the last one that failed. The zero value is ready to use. Waiting is
// safe for concurrent use, must not be copied, and has no cost unless a try fails.
type Waiting struct{ last atomic.Pointer[Retried] }

// Retried describes a call whose last try failed and which will be retried.
type Retried struct {
	Err   *Error    // of the tries so far; read-only
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

// waits records that a call will be retried.
func (x *exchange) waits(o outcome) {
	if w := x.p.Waiting; w != nil {
		r := &Retried{Err: x.error(nil), Since: x.begun, Until: time.Now().Add(o.after)}
		x.told = r
		w.last.Store(r)
	}
}

// over removes the record of this call, unless another call has replaced it.
func (x *exchange) over() {
	if x.told != nil {
		x.p.Waiting.last.CompareAndSwap(x.told, nil)
	}
}
