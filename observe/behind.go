package observe

import (
	"sync"
	"time"
)

// behind bounds from below how long the oldest event that an observer has not handled has been there. Events have no
// times of their own, so it marks how many there are at a moment, and waits until as many are handled; then it marks
// again. The zero value is ready, and safe for concurrent use.
type behind struct {
	mu   sync.Mutex
	left int       // of the events that were there at the mark
	at   time.Time // of the mark
}

// mark notes that so many events are not handled, unless some of an earlier mark are left.
func (b *behind) mark(events int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left <= 0 && events > 0 {
		b.left, b.at = events, time.Now()
	}
}

// handled notes that one event is handled.
func (b *behind) handled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left--
}

// clear notes that all are handled: fewer than there were at the mark, if some have been folded since.
func (b *behind) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = 0
}

// since returns the time of the mark; zero if nothing of it is left.
func (b *behind) since() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left <= 0 {
		return time.Time{}
	}
	return b.at
}
