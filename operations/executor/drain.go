package executor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// drain knows the operations whose calls are under way or whose results are not recorded, and waits for them when the
// executor drains. An operation is known by the flag that wakes it. It is safe for concurrent use. Its lock is a leaf
// lock.
type drain struct {
	mu    sync.Mutex
	begun bool
	busy  map[*news]struct{}
	idle  chan struct{} // closed when a drain has begun and no operation is busy
	lost  bool          // the end came while operations were busy: idle is never closed
}

// begin starts a drain, unless one has started. It wakes the busy operations, so that none waits for a share before it
// records results. It returns a channel that is closed when the drain is over. With end, the results of calls that are
// still under way are lost.
func (d *drain) begin(end bool) (idle <-chan struct{}) {
	d.mu.Lock()
	var woken []*news
	if !d.begun {
		d.begun, d.idle = true, make(chan struct{})
		if len(d.busy) == 0 {
			close(d.idle)
		}
		woken = slices.Collect(maps.Keys(d.busy))
	}
	d.lost = d.lost || end && len(d.busy) > 0
	idle = d.idle
	d.mu.Unlock()
	for _, n := range woken {
		n.Set()
	}
	return idle
}

// wait returns nil when the drain is over. It fails if ctx or stopped ends first.
func (d *drain) wait(ctx context.Context, stopped <-chan struct{}) error {
	idle := d.begin(false)
	select {
	case <-idle:
		return nil
	case <-stopped:
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-idle: // takes precedence if several have happened
		return nil
	default:
	}
	if d.lost {
		return fmt.Errorf("cannot wait for calls under way: %w", errEnded)
	}
	return fmt.Errorf("cannot wait for the calls of %d operations: %w", len(d.busy), context.Cause(ctx))
}

// hasBegun reports whether calls are not started any more.
func (d *drain) hasBegun() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun
}

// enter marks an operation as busy, unless a drain has begun.
func (d *drain) enter(n *news) (ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begun {
		return false
	}
	if d.busy == nil {
		d.busy = make(map[*news]struct{})
	}
	d.busy[n] = struct{}{}
	return true
}

// leave marks an operation as not busy.
func (d *drain) leave(n *news) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, busy := d.busy[n]; !busy {
		return
	}
	if delete(d.busy, n); d.begun && !d.lost && len(d.busy) == 0 {
		close(d.idle)
	}
}
