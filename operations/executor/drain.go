package executor

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Drain starts no new calls from now on. It returns nil when the calls under way have returned and their results are
// recorded, so that no successor repeats them. If ctx ends first, the error wraps its cause. Drain also fails if Run
// ends first. Operations that wait continue to wait; the context of Run has to end as usual. Drain may be called more
// than once, and before Run.
func (e *Executor) Drain(ctx context.Context) error {
	idle := e.beginNoCalls(false)
	select {
	case <-idle:
		return nil
	case <-e.stopped:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-idle: // takes precedence if several have happened
		return nil
	default:
	}
	if e.drain.lost {
		return fmt.Errorf("cannot wait for calls under way: %w", errEnded)
	}
	return fmt.Errorf("cannot wait for the calls of %d operations: %w", len(e.drain.busy), context.Cause(ctx))
}

// beginNoCalls starts a drain, unless one has started. It returns a channel that is closed when the drain is over.
// With end, results of calls that are still under way are lost.
func (e *Executor) beginNoCalls(end bool) (idle <-chan struct{}) {
	e.mu.Lock()
	d := &e.drain
	var woken []*run
	if !d.begun {
		d.begun, d.idle = true, make(chan struct{})
		if len(d.busy) == 0 {
			close(d.idle)
		}
		// so that no run waits for a share before it records results
		woken = slices.Collect(maps.Keys(d.busy))
	}
	d.lost = d.lost || end && len(d.busy) > 0
	idle = d.idle
	e.mu.Unlock()
	for _, r := range woken {
		r.news.Set()
	}
	return idle
}

// draining reports whether calls for a namespace are not started any more.
func (e *Executor) draining(namespace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drain.begun || !e.holds(namespace)
}

// mayCall reports whether a run may make calls now. If so, it marks the run as busy, until settle finds otherwise.
func (e *Executor) mayCall(r *run) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.drain.begun || !e.holds(r.key.Namespace) {
		return false
	}
	e.drain.busy[r] = struct{}{}
	return true
}

// leave marks a run as not busy. The caller holds mu.
func (e *Executor) leave(r *run) {
	d := &e.drain
	if _, busy := d.busy[r]; !busy {
		return
	}
	if delete(d.busy, r); d.begun && !d.lost && len(d.busy) == 0 {
		close(d.idle)
	}
}
