package watch

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// heldSlots are the slots whose objects this process shows. It is safe for concurrent use.
type heldSlots struct {
	report func(held shard.Set)

	mu         sync.Mutex // guards the rest; held during output, so that no event of a lost slot is shown
	held       shard.Set  // as last reported
	lost       shard.Set  // not handed over
	changed    chan struct{}
	departures departures
}

// newHeldSlots returns an empty set. report is called with the slots whenever they change. Calls are not concurrent.
func newHeldSlots(layout shard.Layout, report func(held shard.Set)) *heldSlots {
	return &heldSlots{report: report, held: layout.Set(), lost: layout.Set(), changed: make(chan struct{})}
}

// gain adds slots.
func (h *heldSlots) gain(slots shard.Set) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(h.held.Union(slots), h.lost.Minus(slots))
}

// lose removes slots, and reports whether any was held. After ctx has ended they count as lost, not as handed over:
// another process may have them already.
func (h *heldSlots) lose(ctx context.Context, slots shard.Set) (any bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := h.lost.Minus(slots)
	if ctx.Err() != nil { // asked with the lock held, because output may take long
		lost = lost.Union(slots)
	}
	return h.set(h.held.Minus(slots), lost)
}

// set must be called with the lock held.
func (h *heldSlots) set(held, lost shard.Set) (changed bool) {
	if held == h.held {
		return false
	}
	h.held, h.lost = held, lost
	close(h.changed)
	h.changed = make(chan struct{})
	h.report(held)
	return true
}

// show prints the events of a batch whose slots are held. It waits until the held slots are certain: a process that was
// paused too long first learns which slots it has lost. certain returns the slots that no other process can have.
func (h *heldSlots) show(
	ctx context.Context, certain func() shard.Set, batch []store.Event, print func([]store.Event) error,
) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.held.Minus(certain()).IsEmpty() {
		changed := h.changed
		h.mu.Unlock()
		again := time.NewTimer(10 * time.Millisecond) // the lease may have been renewed meanwhile
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		h.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return print(h.departures.filter(h.held, h.lost, batch))
}
