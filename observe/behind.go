package observe

import (
	"sync"
	"time"
)

// behind computes a lower bound for the age of the oldest unhandled event of an observer. Events carry no times, so
// behind marks the number of unhandled events at a moment, waits until that many are handled, and marks again. The zero
// value is ready for use and safe for concurrent use.
type behind struct {
	mu   sync.Mutex
	left int       // unhandled events of those counted at the mark
	at   time.Time // time of the mark
}

// mark records the number of unhandled events, unless events of an earlier mark are left.
func (b *behind) mark(events int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left <= 0 && events > 0 {
		b.left, b.at = events, time.Now()
	}
}

// handled records that one event has been handled.
func (b *behind) handled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left--
}

// clear records that all events have been handled. Fewer calls of handled may precede it than events were marked, since
// events are folded.
func (b *behind) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = 0
}

// since returns the time of the mark, or zero if no event of it is left.
func (b *behind) since() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left <= 0 {
		return time.Time{}
	}
	return b.at
}
