package store

import "sync"

// drainGoroutines runs the drains of the drainers of a store that have an owner. A goroutine that has no drain left
// waits for the next one, because a new goroutine would have to grow its stack again, for each event. At most maxWaiting
// goroutines wait, and none after the last of these drainers is closed.
type drainGoroutines struct {
	mu       sync.Mutex // a leaf
	drainers int        // that are not closed
	waiting  []chan func()
	closed   bool
}

// maxWaiting bounds the goroutines that wait.
const maxWaiting = 2

// add counts a drainer.
func (g *drainGoroutines) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drainers++
}

// remove ends the goroutines that wait if no drainer is left.
func (g *drainGoroutines) remove() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drainers--; g.drainers == 0 {
		g.endLocked()
	}
}

// close ends the goroutines that wait, for good.
func (g *drainGoroutines) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.endLocked()
}

func (g *drainGoroutines) endLocked() {
	for _, next := range g.waiting {
		close(next)
	}
	g.waiting = nil
}

// run runs a drain on a goroutine that waits, or on a new one. It does not block.
func (g *drainGoroutines) run(drain func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.waiting) - 1
	if last < 0 {
		go g.loop(drain)
		return
	}
	g.waiting[last] <- drain
	g.waiting = g.waiting[:last]
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

// await makes the goroutine of a channel one of those that wait, and reports whether it may.
func (g *drainGoroutines) await(next chan func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.drainers == 0 || len(g.waiting) == maxWaiting {
		return false
	}
	g.waiting = append(g.waiting, next)
	return true
}
