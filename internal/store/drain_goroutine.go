package store

import "sync"

// drainGoroutines runs the drains of the drainers of a store that have an owner. One goroutine that has no drain left
// waits for the next one, because a new goroutine would have to grow its stack again, for each event. After the last of
// these drainers is closed, no goroutine waits.
type drainGoroutines struct {
	mu       sync.Mutex  // a leaf
	drainers int         // that are not closed
	waiting  chan func() // of the goroutine that waits; nil: none
	closed   bool
}

// add counts a drainer.
func (g *drainGoroutines) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drainers++
}

// remove ends the goroutine that waits if no drainer is left.
func (g *drainGoroutines) remove() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drainers--; g.drainers == 0 {
		g.endLocked()
	}
}

// close ends the goroutine that waits, for good.
func (g *drainGoroutines) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.endLocked()
}

func (g *drainGoroutines) endLocked() {
	if g.waiting != nil {
		close(g.waiting)
		g.waiting = nil
	}
}

// run runs a drain on the goroutine that waits, or on a new one. It does not block.
func (g *drainGoroutines) run(drain func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == nil {
		go g.loop(drain)
		return
	}
	g.waiting <- drain
	g.waiting = nil
}

// loop runs drains until the goroutine need not wait for more.
func (g *drainGoroutines) loop(drain func()) {
	next := make(chan func(), 1)
	for drain != nil {
		drain()
		if !g.await(next) {
			return
		}
		drain = <-next
	}
}

// await makes the goroutine of a channel the one that waits, and reports whether it may.
func (g *drainGoroutines) await(next chan func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.drainers == 0 || g.waiting != nil {
		return false
	}
	g.waiting = next
	return true
}
