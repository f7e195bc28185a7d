package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

var _ group.Participant = (*Controller)(nil)

// arrivals are gained slots that are not open yet: the watches may not show every write of the former holder. The zero
// value is empty.
type arrivals struct {
	mu     sync.Mutex
	slots  shard.Set
	change context.CancelCauseFunc // ends the context of the last await; nil before it
}

// errChanged ends a wait because the arriving slots have changed.
var errChanged = errors.New("waiting for other slots")

// update adds the slots that come and removes those that leave.
func (a *arrivals) update(come, leave shard.Set) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slots = come.Union(a.slots).Minus(leave)
	a.endWait()
}

// await returns the slots, and a context that ends when they change.
func (a *arrivals) await(ctx context.Context) (context.Context, shard.Set) {
	ctx, change := context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endWait()
	a.change = change
	return ctx, a.slots
}

func (a *arrivals) endWait() {
	if a.change != nil {
		a.change(errChanged)
	}
}

// open moves the slots to those that are reconciled, unless the context of await has ended.
func (a *arrivals) open(ctx context.Context, to *handover.Slots) (opened bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	to.Gain(a.slots)
	a.slots = to.Layout().Set()
	return true
}

// Gain implements [group.Participant]. The controller reconciles the objects of these slots once all of its watches
// show every write of the former holder.
func (c *Controller) Gain(_ context.Context, slots shard.Set) error {
	if c.slots == nil {
		return fmt.Errorf("cannot gain slots: controller %q works on everything: its host shares nothing", c.name)
	}
	c.arrivals.update(slots, c.slots.Layout().Set())
	return nil
}

// openSlots opens gained slots until ctx ends.
func (c *Controller) openSlots(ctx context.Context) {
	for attempt := 0; ctx.Err() == nil; {
		same, slots := c.arrivals.await(ctx)
		if slots.IsEmpty() {
			attempt = 0
			<-same.Done()
			continue
		}
		err := c.awaitSlots(same, slots)
		switch {
		case same.Err() != nil:
			attempt = 0
		case err != nil:
			c.log.WarnContext(ctx, "cannot start work on slots yet", "slots", slots.String(), "error", err)
			_ = backoff.Pause(same, reopening.Delay(attempt, rand.Float64)) // the loop checks ctx
			attempt++
		case c.arrivals.open(same, c.slots):
			attempt = 0
			c.reconcileSlots(slots)
		}
	}
}

// awaitSlots waits until the watches show every object of the slots as of the call.
func (c *Controller) awaitSlots(ctx context.Context, slots shard.Set) error {
	c.mu.Lock()
	intakes := c.intakes
	c.mu.Unlock()
	for _, s := range intakes {
		if s.sub.follow != nil {
			continue
		}
		wait := func() error { return s.handle.WaitSlots(ctx, slots) }
		if s.handle.Options().Shard == "" { // the store already has the objects, but may be stale
			wait = func() error { return s.handle.Barrier(ctx) }
		}
		if err := wait(); err != nil {
			return fmt.Errorf("watch %s: %w", s.watch.name, err)
		}
	}
	return nil
}

// reconcileSlots adds the objects of slots that have just opened. Earlier events of them are not in the queue.
func (c *Controller) reconcileSlots(slots shard.Set) {
	c.mu.Lock()
	st := c.primary
	c.mu.Unlock()
	if st == nil {
		return
	}
	for r := range st.handle.Snapshot().All() {
		if slots.Has(r.Namespace(), r.UID()) {
			now := factsOf(r)
			why := Reason{Type: Initial, Source: c.main.name, Key: r.Key(), Version: r.Version()}
			c.add(r.Key(), why, low, &now)
		}
	}
}

// Lose implements [group.Participant]. Objects that leave with their slots are not cleaned up: no Cleanup and no Undo
// runs.
func (c *Controller) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	if c.slots == nil {
		return
	}
	c.arrivals.update(c.slots.Layout().Set(), slots)
	c.mu.Lock()
	drain := c.slots.Lose(slots) // under mu, so that the queue keeps nothing of the slots
	for _, it := range c.q.items {
		if it.current == nil && slots.Holds(it.slot) {
			c.q.forget(it)
		}
	}
	c.mu.Unlock()
	c.moveFibers(slots, func(f flow.Handle) { f.Interrupt(errMoved) })
	drain.Wait(ctx, func(busy shard.Set, cause error) {
		for _, r := range c.runningOf(busy) {
			r.stop(cause)
		}
		c.moveFibers(busy, func(f flow.Handle) { f.Cancel(fmt.Errorf("%w: %w", flow.ErrMoved, cause)) })
	}, quiet)
}

// runningOf returns the running reconciliations of slots.
func (c *Controller) runningOf(slots shard.Set) (all []*reconciliation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := c.runs.first; r != nil; r = r.next {
		if slots.Holds(r.slot) {
			all = append(all, r)
		}
	}
	return all
}

// moveFibers ends the fibers of slots, so that another process resumes them.
func (c *Controller) moveFibers(slots shard.Set, end func(flow.Handle)) {
	if c.object.move != nil {
		c.object.move(slots, end)
	}
}

// slotOf returns the slot of an object, and whether the controller works on it. now is the state of the object in an
// event about it, or nil. The caller holds c.mu.
func (c *Controller) slotOf(k Key, now *facts) (slot int, works bool) {
	if c.slots == nil {
		return 0, true
	}
	var uid types.UID
	switch {
	case c.slots.Layout().By == shard.Namespace:
	case now != nil:
		uid = now.uid
	case c.primary == nil:
		return 0, false
	default:
		rec, ok := c.primary.handle.Get(k)
		if !ok {
			return 0, false
		}
		uid = rec.UID()
	}
	slot = c.slots.SlotOf(k.Namespace, uid)
	return slot, c.slots.Holds(slot)
}

// spread reports whether a watch of another kind must hold the objects of every slot. The related objects share the
// slot of the primary only if the layout is by namespace and both kinds, or neither, are namespaced.
func (c *Controller) spread(w *watch) (bool, error) {
	switch {
	case c.slots == nil:
		return false, nil
	case c.slots.Layout().By != shard.Namespace:
		return true, nil
	}
	m, err := c.client.Mapper().RESTMapping(w.kind.GroupKind(), w.kind.Version)
	if err != nil {
		return false, fmt.Errorf("cannot watch %s: %w", w.name, err)
	}
	return (m.Scope.Name() == meta.RESTScopeNameNamespace) != c.primaryInfo().namespaced, nil
}
