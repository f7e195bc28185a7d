package executor

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Drain begins no new calls from now on, and returns when those under way have come back and what they brought is
// recorded, so that nobody makes them again. If ctx, or Run, ends first, it returns why. Operations that wait go on
// waiting; Run has to be ended as usual. It may be called more than once, and before Run.
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
	case <-idle: // that is what counts, when several have happened
		return nil
	default:
	}
	if e.drain.lost {
		return fmt.Errorf("cannot wait for calls under way: %w", errEnded)
	}
	return fmt.Errorf("cannot wait for the calls of %d operations: %w", len(e.drain.busy), context.Cause(ctx))
}

// beginNoCalls begins a drain, unless one has begun, and returns what is closed when it is over. With end, calls that
// are still under way are lost.
func (e *Executor) beginNoCalls(end bool) (idle <-chan struct{}) {
	e.mu.Lock()
	d := &e.drain
	var woken []*run
	if !d.begun {
		d.begun, d.idle = true, make(chan struct{})
		if len(d.busy) == 0 {
			close(d.idle)
		}
		// so that none waits for its namespace's share to record what its calls have brought
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

// draining tells whether no calls are begun any more for a namespace.
func (e *Executor) draining(namespace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drain.begun || e.tenureLocked(namespace) == nil
}

// mayCall tells whether a run may make calls now. If so it is busy, until settle finds that it is not.
func (e *Executor) mayCall(r *run) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.drain.begun || e.tenureLocked(r.key.Namespace) == nil {
		return false
	}
	e.drain.busy[r] = struct{}{}
	return true
}

// leave notes that a run is not busy; the caller holds mu.
func (e *Executor) leave(r *run) {
	d := &e.drain
	if _, busy := d.busy[r]; !busy {
		return
	}
	if delete(d.busy, r); d.begun && !d.lost && len(d.busy) == 0 {
		close(d.idle)
	}
}
