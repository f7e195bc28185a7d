package call

import (
	"sync/atomic"
	"time"
)

// Waiting shows the call that is being tried again, to those who ask why nothing moves. It is given to calls in their
// Policy; of several at a time it shows the last one that failed. The zero value is ready for use. It is safe for
// concurrent use, must not be copied, and costs nothing unless a try fails.
type Waiting struct{ last atomic.Pointer[Retried] }

// Retried is a call whose last try failed, and which goes on.
type Retried struct {
	Err   *Error    // of its tries so far; to be read only
	Since time.Time // when the call began
	Until time.Time // when the next try is due; before now, it is under way
}

// Last returns the call that is being tried again; false if there is none.
func (w *Waiting) Last() (Retried, bool) {
	if w == nil {
		return Retried{}, false
	}
	if r := w.last.Load(); r != nil {
		return *r, true
	}
	return Retried{}, false
}

// waits notes that a call is tried again.
func (x *exchange) waits(o outcome) {
	if w := x.p.Waiting; w != nil {
		r := &Retried{Err: x.error(nil), Since: x.begun, Until: time.Now().Add(o.after)}
		x.told = r
		w.last.Store(r)
	}
}

// over notes that it is not any more, unless another one is by now.
func (x *exchange) over() {
	if x.told != nil {
		x.p.Waiting.last.CompareAndSwap(x.told, nil)
	}
}
