package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fairlead-io/fairlead/shard"
)

// Sharding is which slots a replica holds: one object for all its sources, which attach to it while they run
// (Config.Sharding), and all change with it. It is safe for concurrent use.
//
// One that was never set holds nothing, and nobody knows yet what it will hold: its sources are not synced. One that
// was set to no slot has nothing to be listed: its sources are synced, and say ReasonNoSlots.
type Sharding struct {
	layout shard.Layout

	mu      sync.Mutex // before Source.mu, which is before scope.mu
	set     shard.Set
	turn    uint64         // how often it was set
	lost    map[int]uint64 // by slot: the turn that took it away last
	sources map[*Source]struct{}
	further chan struct{} // closed, and replaced, when a source has come further
}

// Sharded is what a Sink must implement besides to be filled with the objects of some slots. Its calls are of the same
// goroutine as the others of the scope.
type Sharded interface {
	// Hold says which slots the scope holds from now on; before the first call it is none. The objects of all others are
	// forgotten at once: they have left, and are not deleted. Of slots that are new nothing is known until they were
	// listed, by Gain or Replace.
	Hold(set shard.Set)
	// Gain begins a replacement of these slots alone, which are held and not listed yet. Its Commit adds their objects and
	// touches no others. Its version is not that of the scope, but that up to which the objects of these slots are known:
	// what happened to them before is not told again, except that a Deleted may be.
	Gain(slots shard.Set) Replacement
}

// NewSharding makes one that was not set yet. Sets of other layouts are refused.
func NewSharding(layout shard.Layout) *Sharding {
	return &Sharding{
		layout: layout, set: layout.Set(), lost: map[int]uint64{}, sources: map[*Source]struct{}{},
		further: make(chan struct{}),
	}
}

// Layout is how the objects are divided.
func (h *Sharding) Layout() shard.Layout { return h.layout }

// Held returns the slots that are to be held.
func (h *Sharding) Held() shard.Set {
	set, _ := h.state()
	return set
}

// String is like "namespace/64".
func (h *Sharding) String() string { return fmt.Sprintf("%s/%d", h.layout.By, h.layout.Len()) }

// state returns the slots, and how often they were set.
func (h *Sharding) state() (shard.Set, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.set, h.turn
}

// since returns also which slots were taken away after a turn, whether or not they have come back.
func (h *Sharding) since(before uint64) (set shard.Set, turn uint64, lost shard.Set) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost = h.layout.Set()
	for slot, at := range h.lost {
		if at > before {
			lost = lost.Union(h.layout.Set(slot))
		}
	}
	return h.set, h.turn, lost
}

// Set has all sources hold these slots from now on. It does not wait for them: see Wait and WaitLeft. The only error is
// a set of another layout.
func (h *Sharding) Set(set shard.Set) error {
	if want, is := h.set.Layout(), set.Layout(); want != is {
		return fmt.Errorf("cannot hold slots of %d by %s: the objects are divided into %d by %s", is.Slots, is.By,
			want.Slots, want.By)
	}
	h.change(func(shard.Set) shard.Set { return set })
	return nil
}

// Gain has all sources hold these slots besides, and Lose has them hold these no more: with them a Sharding takes part
// in a group (package shard/group). Gain does not wait for the lists of what has come, Lose waits for what has left as
// long as ctx lasts.
func (h *Sharding) Gain(_ context.Context, slots shard.Set) error {
	h.change(func(held shard.Set) shard.Set { return held.Union(slots) })
	return nil
}

// Lose is told at Gain. It does not call quiet.
func (h *Sharding) Lose(ctx context.Context, slots shard.Set, _ func(shard.Set)) {
	h.change(func(held shard.Set) shard.Set { return held.Minus(slots) })
	_ = h.WaitLeft(ctx) // what does not leave in time is of no use to anybody, and harms nobody
}

// change has all sources hold what fn makes of what they are to hold now.
func (h *Sharding) change(fn func(held shard.Set) shard.Set) {
	h.mu.Lock()
	set := fn(h.set)
	if h.turn > 0 && h.set == set {
		h.mu.Unlock()
		return
	}
	h.turn++
	for slot := range h.set.Minus(set).Slots() {
		h.lost[slot] = h.turn
	}
	h.set = set
	sources := make([]*Source, 0, len(h.sources))
	for s := range h.sources {
		sources = append(sources, s)
	}
	h.mu.Unlock()
	for _, s := range sources {
		s.takeSlots()
	}
}

// Wait returns when every source that runs has done what was set before the call: what has left was forgotten, and
// what has come was listed and handed over. One that begins to run later begins with what is held then, and is not
// waited for. It fails with the cause of ctx and the condition of what is behind. No Sink, and nobody whom a Sink calls,
// must call it: it would wait for itself.
func (h *Sharding) Wait(ctx context.Context) error {
	return h.wait(ctx, "to be listed", func(p slotProgress) uint64 { return p.listed })
}

// WaitLeft is Wait for what has left alone.
func (h *Sharding) WaitLeft(ctx context.Context) error {
	return h.wait(ctx, "to be let go", func(p slotProgress) uint64 { return p.left })
}

// slotProgress is how far a scope has followed: the turns of the Sharding.
type slotProgress struct{ left, listed uint64 }

func (h *Sharding) wait(ctx context.Context, what string, come func(slotProgress) uint64) error {
	_, turn := h.state()
	for {
		behind, further := h.behind(func(p slotProgress) bool { return come(p) < turn })
		switch {
		case len(behind) == 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("cannot wait for slots %s: %w; behind: %s", what, context.Cause(ctx),
				strings.Join(behind, ", "))
		}
		select {
		case <-further:
		case <-ctx.Done():
		}
	}
}

// behind describes the scopes that are behind, and tells when to look again.
func (h *Sharding) behind(is func(slotProgress) bool) (behind []string, further <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sources {
		behind = append(behind, s.behindSlots(is)...)
	}
	return behind, h.further
}

// attach adds a source that runs; the returned function removes it.
func (h *Sharding) attach(s *Source) (detach func()) {
	if h == nil {
		return func() {}
	}
	h.mu.Lock()
	h.sources[s] = struct{}{}
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		delete(h.sources, s)
		h.mu.Unlock()
		h.comeFurther()
	}
}

// comeFurther has those who wait look again. A nil Sharding has none.
func (h *Sharding) comeFurther() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.further)
	h.further = make(chan struct{})
}

// sharding is what a Config says of slots; nil: all objects are held.
func (c *Config) sharding() (*Sharding, error) {
	h := c.Sharding
	switch {
	case h != nil && c.Shard != nil:
		return nil, errors.New("both Shard and Sharding are given")
	case c.Shard != nil:
		h = NewSharding(c.Shard.Layout())
		h.set, h.turn = *c.Shard, 1
	case h == nil:
		return nil, nil
	}
	return h, h.layout.Check()
}

// takeSlots has all scopes look at what they are to hold.
func (s *Source) takeSlots() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.scopes {
		sc.interrupt(errSlots)
	}
}

// behindSlots describes the scopes that are behind.
func (s *Source) behindSlots(behind func(slotProgress) bool) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.sortedLocked() {
		if text, is := sc.behindSlots(behind); is {
			out = append(out, text)
		}
	}
	return out
}

// ShardName says in a word how the objects are divided: "namespace/64", with the slots if they are only those of this
// source (Config.Shard): "namespace/64: 0-15". It is "" if all objects are held.
func (c *Config) ShardName() string {
	switch {
	case c.Sharding != nil:
		return c.Sharding.String()
	case c.Shard != nil:
		l := c.Shard.Layout()
		return fmt.Sprintf("%s/%d: %s", l.By, l.Len(), c.Shard)
	}
	return ""
}
