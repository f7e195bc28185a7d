package observe

import "sync"

// latch is an event that happens once. Its channel is created only at the first call of done, since most latches of
// idle observers are never waited for.
type latch struct {
	mu    sync.Mutex
	c     chan struct{}
	fired bool
}

// fire triggers the latch. It returns false if the latch has already fired.
func (l *latch) fire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fired {
		return false
	}
	l.fired = true
	if l.c != nil {
		close(l.c)
		l.c = nil
	}
	return true
}

// done returns a channel that is closed when the latch fires.
func (l *latch) done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		c := make(chan struct{})
		if l.fired {
			close(c)
			return c
		}
		l.c = c
	}
	return l.c
}

func (l *latch) happened() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fired
}
