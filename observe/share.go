package observe

import (
	"context"
	"errors"
	"sync"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// Shards selects the objects that this process works on if replicas share the objects. *group.Group implements it. The
// registry is a participant of the group; it gains slots before the sources and loses them after.
type Shards interface {
	Layout() shard.Layout
	Held() shard.Set
	// Fence returns an error if no requests may be sent for a slot. It must be quick and safe for concurrent use.
	Fence(slot int) error
}

var (
	_ Shards            = (*group.Group)(nil)
	_ group.Participant = (*Registry)(nil)
)

// gate admits calls of observers if replicas share the objects. No call begins for an object whose slot is lost, and a
// slot is released only when none of its calls is in progress.
type gate struct {
	shards Shards
	layout shard.Layout
	any    func() error // the fence of calls without a slot

	mu    sync.Mutex
	base  context.Context //nolint:containedctx // the context of the run, to which all calls belong
	lost  shard.Set
	slots []slotCalls
}

// slotCalls are the calls for objects of one slot.
type slotCalls struct {
	ctx     context.Context //nolint:containedctx // the context of the calls; nil before the first one
	cancel  context.CancelCauseFunc
	running int
	idle    chan struct{} // closed when no call is in progress; made by the goroutine that waits
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

// begin sets the context of the run. It returns the context for calls without a slot, bound to their fence. A nil gate
// returns run itself.
func (g *gate) begin(run context.Context) context.Context {
	if g == nil {
		return run
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base = run
	return binding.With(run, binding.Binding{Fence: g.any, RequireVersion: true})
}

// entry is a call that the gate has admitted.
type entry struct {
	gate *gate
	slot int
}

// enter begins a call for an object unless its slot is lost. The caller must then call leave. Derived objects are
// always admitted, since their namespace may differ from that of their inputs and the gate does not know whose slot
// counts.
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
		bound := binding.With(g.base, binding.Binding{
			Fence: func() error { return g.shards.Fence(slot) }, RequireVersion: true,
		})
		s.ctx, s.cancel = context.WithCancelCause(bound)
	}
	s.running++
	return s.ctx, entry{g, slot}, true
}

// leave ends a call. It does nothing for a call without a gate.
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

// close admits no more calls for the slots. It returns the slots with calls in progress, each with a channel that is
// closed at their end.
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

// end cancels the context of the calls of a slot. It requires the lock of the gate.
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

// Lose implements [group.Participant]. Calls in progress finish; when ctx ends, their contexts are cancelled. Lose does
// not wait until observers have received Left.
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

// skipped are the objects whose events an observer did not receive because their slot was lost first. The observer does
// not receive Left for them either. The zero value is ready for use.
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

// take reports whether Left must not be delivered for an object.
func (s *skipped) take(k cache.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.keys[k]
	delete(s.keys, k)
	return ok
}
