package webhook

import "sync"

// lifetime counts the tries in progress, so that close can wait for them.
type lifetime struct {
	mu     sync.Mutex
	closed bool
	tries  sync.WaitGroup
}

// begin registers a try, which ends with end. It reports false after close.
func (l *lifetime) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.tries.Add(1)
	return true
}

func (l *lifetime) end() { l.tries.Done() }

// close waits for the tries in progress.
func (l *lifetime) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.tries.Wait()
}
