package observe

import (
	"context"
	"errors"
	"sync"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// gate admits calls of observers if replicas share the objects. No call begins for an object whose slot is lost, and a
// slot is released only when none of its calls is in progress.
type gate struct {
	shards shard.Membership
	slots  *handover.Slots
	run    context.Context //nolint:containedctx // the context of the run, to which all calls belong; set by begin
}

func newGate(s shard.Membership) *gate {
	if s == nil {
		return nil
	}
	g := &gate{shards: s}
	g.slots = handover.New(s.Layout(), group.ErrMoved, func(slot int) context.Context {
		return binding.With(g.run, binding.Binding{
			Fence: func() error { return s.Fence(slot) }, RequireVersion: true,
		})
	})
	return g
}

// begin sets the context of the run, before the first call. It returns the context for calls without a slot, bound to
// their fence. A nil gate returns run itself.
func (g *gate) begin(run context.Context) context.Context {
	if g == nil {
		return run
	}
	g.run = run
	return binding.With(run, binding.Binding{Fence: g.fence, RequireVersion: true})
}

// fence is the fence of calls without a slot. It permits them while any slot is held.
func (g *gate) fence() error {
	for slot := range g.slots.Layout().Len() {
		if g.shards.Fence(slot) == nil {
			return nil
		}
	}
	return group.ErrNotHeld
}

// entry is a call that the gate has admitted. It is empty for a call without a gate.
type entry struct {
	slots *handover.Slots
	slot  int
}

// enter begins a call for an object unless its slot is lost. The caller must then call leave. Derived objects are
// always admitted, since their namespace may differ from that of their inputs and the gate does not know whose slot
// counts.
func (g *gate) enter(r *cache.Record, derived bool) (ctx context.Context, in entry, ok bool) {
	if derived {
		in = entry{g.slots, g.slots.SlotOf(r.Namespace(), r.UID())}
		g.slots.Add(in.slot)
		return nil, in, true
	}
	slot, t, ok := g.slots.EnterFor(r.Namespace(), r.UID())
	if !ok {
		return nil, entry{}, false
	}
	return t.Context, entry{g.slots, slot}, true
}

// leave ends a call.
func (in entry) leave() { in.slots.Leave(in.slot) }

// gain admits calls for the objects of slots. A nil gate returns an error.
func (g *gate) gain(slots shard.Set) error {
	if g == nil {
		return errors.New("cannot gain slots: the registry works on everything: it was made without Shards")
	}
	g.slots.Gain(slots)
	return nil
}

// lose ends the admission for slots. Calls in progress finish; when ctx ends, their contexts are cancelled.
func (g *gate) lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	if g != nil {
		g.slots.Lose(slots).Wait(ctx, nil, quiet)
	}
}

// skipped are the objects whose additions an observer did not receive because their slot was lost first. The observer
// receives neither their changes nor Left for them, even if the slot has returned meanwhile. The zero value is ready
// for use.
type skipped struct {
	mu   sync.Mutex
	keys map[cache.Key]struct{}
}

// add records that an event was not delivered.
func (s *skipped) add(e *store.Event) {
	if e.Type != store.Added {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[cache.Key]struct{}{}
	}
	s.keys[e.Key] = struct{}{}
}

// has reports whether a change of an object must not be delivered.
func (s *skipped) has(k cache.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.keys[k]
	return ok
}

// take reports whether Left must not be delivered for an object.
func (s *skipped) take(k cache.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.keys[k]
	delete(s.keys, k)
	return ok
}
