package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// Shards selects the objects of this process, where replicas share the objects. A *group.Group implements Shards; its
// controllers are the participants.
type Shards interface {
	Layout() shard.Layout
	// Fence returns an error if no request may be sent for objects of a slot. It must be quick and safe for concurrent
	// use.
	Fence(slot int) error
}

var (
	_ Shards            = (*group.Group)(nil)
	_ group.Participant = (*Controller)(nil)
)

// part is the state of a controller whose replicas share the objects. Controller.mu guards it.
type part struct {
	shards  Shards
	layout  shard.Layout
	open    shard.Set // slots whose objects are reconciled
	coming  shard.Set // gained slots; the watches may not be fresh enough for them yet
	turn    uint64    // incremented on each change of coming, except by openSlots
	changed chan struct{}
	problem error // why coming cannot be opened yet
}

func newPart(s Shards) *part {
	if s == nil {
		return nil
	}
	l := s.Layout()
	return &part{shards: s, layout: l, open: l.Set(), coming: l.Set(), changed: make(chan struct{})}
}

// change wakes openSlots.
func (p *part) change() {
	p.turn++
	close(p.changed)
	p.changed = make(chan struct{})
}

// Gain implements [group.Participant]. The controller reconciles the objects of these slots once all of its watches
// show every write of the former holder.
func (c *Controller) Gain(_ context.Context, slots shard.Set) error {
	if c.part == nil {
		return fmt.Errorf("cannot gain slots: controller %q works on everything: its host shares nothing", c.name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.part.coming = c.part.coming.Union(slots)
	c.part.change()
	return nil
}

// openSlots opens gained slots until ctx ends.
func (c *Controller) openSlots(ctx context.Context) {
	for attempt := 0; ctx.Err() == nil; {
		c.mu.Lock()
		slots, turn, changed := c.part.coming, c.part.turn, c.part.changed
		c.mu.Unlock()
		if slots.IsEmpty() {
			attempt = 0
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		err := c.awaitSlots(ctx, changed, slots)
		c.mu.Lock()
		if c.part.problem = err; turn != c.part.turn {
			attempt, err = 0, errChanged
		}
		if err == nil {
			c.part.open, c.part.coming = c.part.open.Union(slots), c.part.layout.Set()
		}
		st := c.primary
		c.mu.Unlock()
		switch {
		case err == nil && st != nil: // events before this point are not in the queue
			for r := range st.handle.Snapshot().All() {
				if slots.Has(r.Namespace(), r.UID()) {
					now := factsOf(r)
					why := Reason{Type: Initial, Source: c.main.name, Key: r.Key(), Version: r.Version()}
					c.add(r.Key(), why, low, &now)
				}
			}
		case err != nil && !errors.Is(err, errChanged) && ctx.Err() == nil:
			c.log.WarnContext(ctx, "slots cannot be worked on yet", "slots", slots.String(), "error", err)
			pause := time.NewTimer(reopening.Delay(attempt, rand.Float64))
			select {
			case <-pause.C:
			case <-changed:
			case <-ctx.Done():
			}
			pause.Stop()
			attempt++
		}
	}
}

// errChanged ends a wait because the set of coming slots has changed.
var errChanged = errors.New("other slots are to come")

// awaitSlots waits until the watches show every object of the slots as of the call. It returns errChanged if the coming
// slots change.
func (c *Controller) awaitSlots(ctx context.Context, changed <-chan struct{}, slots shard.Set) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer close(over)
	watching.Go(func() {
		select {
		case <-changed:
			cancel(errChanged)
		case <-over:
		}
	})
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

// Lose implements [group.Participant]. Objects that leave with their slots are not cleaned up: no Cleanup and no Undo
// runs.
func (c *Controller) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	if c.part == nil {
		return
	}
	busy := map[int][]*reconciliation{}
	c.mu.Lock()
	c.part.open, c.part.coming = c.part.open.Minus(slots), c.part.coming.Minus(slots)
	c.part.change()
	for _, it := range c.q.items {
		switch r := it.current; {
		case r != nil && slots.Holds(r.slot):
			it.left, it.reasons = true, reasons{}
			if r.over == nil {
				r.over = make(chan struct{})
			}
			busy[r.slot] = append(busy[r.slot], r)
		case r == nil && slots.Holds(it.slot):
			c.q.forget(it)
		}
	}
	c.mu.Unlock()
	idle := slots
	var all sync.WaitGroup
	for slot, runs := range busy {
		one := c.part.layout.Set(slot)
		idle = idle.Minus(one)
		all.Go(func() {
			for _, r := range runs {
				select {
				case <-r.over:
				case <-ctx.Done():
					r.stop(context.Cause(ctx))
					<-r.over
				}
			}
			c.loseFibers(ctx, one, quiet)
		})
	}
	c.loseFibers(ctx, idle, quiet)
	all.Wait()
}

// loseFibers ends the fibers of slots that have no running reconciliation.
func (c *Controller) loseFibers(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	if c.object.move == nil {
		quiet(slots)
		return
	}
	busy := c.object.move(func(k Key, uid types.UID) (slot int, leaves bool) {
		slot = c.part.layout.SlotOf(k.Namespace, uid)
		return slot, slots.Holds(slot)
	})
	var all sync.WaitGroup
	for slot, fibers := range busy {
		one := c.part.layout.Set(slot)
		slots = slots.Minus(one)
		all.Go(func() {
			for _, f := range fibers {
				select {
				case <-f.Done():
				case <-ctx.Done():
					f.Cancel(fmt.Errorf("%w: %w", flow.ErrMoved, context.Cause(ctx)))
					<-f.Done()
				}
			}
			quiet(one)
		})
	}
	quiet(slots)
	all.Wait()
}

// slotOf returns the slot of an object, and whether the controller works on it. now is the state of the object in an
// event about it, or nil. The caller holds c.mu.
func (c *Controller) slotOf(k Key, now *facts) (slot int, works bool) {
	p := c.part
	if p == nil {
		return 0, true
	}
	var uid types.UID
	switch {
	case p.layout.By == shard.Namespace:
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
	slot = p.layout.SlotOf(k.Namespace, uid)
	return slot, p.open.Holds(slot)
}

// spread reports whether a watch of another kind must hold the objects of every slot. The related objects share the
// slot of the primary only if the layout is by namespace and both kinds, or neither, are namespaced.
func (c *Controller) spread(w *watch) (bool, error) {
	switch {
	case c.part == nil:
		return false, nil
	case c.part.layout.By != shard.Namespace:
		return true, nil
	}
	m, err := c.client.Mapper().RESTMapping(w.kind.GroupKind(), w.kind.Version)
	if err != nil {
		return false, fmt.Errorf("cannot watch %s: %w", w.name, err)
	}
	return (m.Scope.Name() == meta.RESTScopeNameNamespace) != c.primaryInfo().namespaced, nil
}
