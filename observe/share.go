package observe

import (
	"context"
	"errors"
	"sync"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// Shards says what this process may work on where replicas share the objects. A *group.Group is one, of which the
// registry is a participant: it gains before the sources and loses after them.
type Shards interface {
	Layout() shard.Layout
	Held() shard.Set
	// Fence says why nothing may be sent for a slot. It must be quick and safe for concurrent use.
	Fence(slot int) error
}

var (
	_ Shards            = (*group.Group)(nil)
	_ group.Participant = (*Registry)(nil)
)

// gate is what calls of observers pass where replicas share the objects: none begins for an object whose slot has left,
// and a slot is let go when none runs.
type gate struct {
	shards Shards
	layout shard.Layout
	any    func() error // the fence of calls that are of no slot

	mu    sync.Mutex
	base  context.Context //nolint:containedctx // that of the run, to which all calls belong
	lost  shard.Set
	slots []slotCalls
}

// slotCalls are the calls for objects of a slot.
type slotCalls struct {
	ctx     context.Context //nolint:containedctx // what they are given; nil before the first one
	cancel  context.CancelCauseFunc
	running int
	idle    chan struct{} // closed when none runs; made by who waits
}

func newGate(s Shards) *gate {
	if s == nil {
		return nil
	}
	l := s.Layout()
	return &gate{shards: s, layout: l, lost: l.Set(), slots: make([]slotCalls, l.Len()), any: func() error {
		if s.Held().IsEmpty() {
			return group.ErrNotHeld
		}
		return nil
	}}
}

// begin is told the context of the run. A nil gate returns it; others add what calls that are of no slot may send.
func (g *gate) begin(run context.Context) context.Context {
	if g == nil {
		return run
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base = run
	return client.Bind(run, client.Binding{Fence: g.any, RequireVersion: true})
}

// entry is a call that has passed the gate.
type entry struct {
	gate *gate
	slot int
}

// enter begins a call for an object, unless its slot has left. leave has to be called after it. What was derived may be
// of another namespace than what it was made of: who knows whether that has left?
func (g *gate) enter(r *cache.Record, derived bool) (ctx context.Context, in entry, ok bool) {
	slot := g.layout.SlotOf(r.Namespace(), r.UID())
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.slots[slot]
	switch {
	case derived:
		s.running++
		return nil, entry{g, slot}, true
	case g.lost.Holds(slot):
		return nil, entry{}, false
	case s.ctx == nil:
		bound := client.Bind(g.base, client.Binding{
			Fence: func() error { return g.shards.Fence(slot) }, RequireVersion: true,
		})
		s.ctx, s.cancel = context.WithCancelCause(bound)
	}
	s.running++
	return s.ctx, entry{g, slot}, true
}

// leave ends a call. It does nothing for one that has passed no gate.
func (in entry) leave() {
	if in.gate == nil {
		return
	}
	in.gate.mu.Lock()
	defer in.gate.mu.Unlock()
	s := &in.gate.slots[in.slot]
	if s.running--; s.running == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// close has nothing more enter for slots, and returns those of which calls run, each with what is closed at their end.
func (g *gate) close(slots shard.Set) map[int]<-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = g.lost.Union(slots)
	busy := map[int]<-chan struct{}{}
	for slot := range slots.Slots() {
		if s := &g.slots[slot]; s.running > 0 {
			if s.idle == nil {
				s.idle = make(chan struct{})
			}
			busy[slot] = s.idle
		} else {
			s.end(group.ErrMoved)
		}
	}
	return busy
}

// end ends the context of the calls of a slot. Under the lock of the gate.
func (s *slotCalls) end(cause error) {
	if s.ctx != nil {
		s.cancel(cause)
		s.ctx, s.cancel = nil, nil
	}
}

func (g *gate) end(slot int, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slots[slot].end(cause)
}

// Gain implements [group.Participant].
func (r *Registry) Gain(_ context.Context, slots shard.Set) error {
	g := r.gate
	if g == nil {
		return errors.New("cannot gain slots: the registry works on everything: it was made without Shards")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = g.lost.Minus(slots)
	return nil
}

// Lose implements [group.Participant]. Calls that run are finished; when ctx ends, so do their contexts. That objects
// have left is told besides, and not waited for.
func (r *Registry) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	g := r.gate
	if g == nil {
		return
	}
	var all sync.WaitGroup
	for slot, idle := range g.close(slots) {
		one := g.layout.Set(slot)
		slots = slots.Minus(one)
		all.Go(func() {
			select {
			case <-idle:
			case <-ctx.Done():
				g.end(slot, context.Cause(ctx))
				<-idle
			}
			g.end(slot, group.ErrMoved)
			quiet(one)
		})
	}
	quiet(slots)
	all.Wait()
}

// skipped are the objects of which an observer was given nothing, since their slot had left before it was their turn:
// that they have left is not told either. The zero value is ready for use.
type skipped struct {
	mu   sync.Mutex
	keys map[cache.Key]struct{}
}

// add notes that an event was not given.
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

// take says whether that an object has left is not to be told.
func (s *skipped) take(k cache.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.keys[k]
	delete(s.keys, k)
	return ok
}
