package source

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead-io/fairlead/shard"
)

// Sharding is the set of slots that a replica holds. Several sources share one Sharding (Config.Sharding) and follow
// its changes while they run. It is safe for concurrent use.
//
// A Sharding can be a member of a group (group.Participant). It does no work for single objects: it neither admits nor
// counts any, unlike the participants that use package internal/handover. It loses slots after those have drained.
//
// Before the first Set the slots are unknown: the sources hold no slot and are not synced. After a Set to the empty set
// there is no object to list: the sources are synced and report ReasonNoSlots.
type Sharding struct {
	layout shard.Layout

	mu       sync.Mutex // locked before Source.mu, which is locked before those of a scope
	set      shard.Set
	turn     uint64         // number of changes
	lost     map[int]uint64 // by slot: the turn that last removed it
	sources  map[shardFollower]struct{}
	progress chan struct{} // closed and replaced when a source makes progress
}

// shardFollower is a source that follows the slots.
type shardFollower interface {
	// interruptScopes makes all scopes apply the new slots.
	interruptScopes()
	// behindSlots describes the scopes that are behind.
	behindSlots(is func(slotProgress) bool) []string
	// unreadySlots returns the slots of want that are not listed, and describes the scopes whose lists fail.
	unreadySlots(want shard.Set) (slots shard.Set, failing []string)
}

// Sharded is the additional interface of a Sink for sharded sources. The goroutine of the scope makes all calls, as for
// Sink.
type Sharded interface {
	// Hold sets the slots that the scope holds. Before the first call it holds none. The sink drops the objects of all
	// other slots at once, without deletion events. New slots have no content until Gain or Replace lists them.
	Hold(set shard.Set)
	// Gain begins a replacement of only these slots, which are held and not listed yet. Its Commit adds their objects
	// and touches no others. The version of that Commit applies to these slots and not to the scope. The scope delivers
	// no earlier change of them again, except possibly a Deleted.
	Gain(slots shard.Set) Replacement
}

// NewSharding returns a Sharding before its first Set. Set rejects sets of other layouts, except for their boundaries.
func NewSharding(layout shard.Layout) *Sharding {
	return &Sharding{
		layout: layout, set: layout.Set(), lost: map[int]uint64{}, sources: map[shardFollower]struct{}{},
		progress: make(chan struct{}),
	}
}

// Layout returns the division of objects into slots, as NewSharding got it.
func (h *Sharding) Layout() shard.Layout { return h.layout }

// Held returns the slots that the sources must hold.
func (h *Sharding) Held() shard.Set {
	set, _ := h.state()
	return set
}

// String returns a text such as "namespace/64".
func (h *Sharding) String() string { return fmt.Sprintf("%s/%d", h.layout.By, h.layout.Len()) }

// state returns the slots and the number of changes.
func (h *Sharding) state() (shard.Set, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.set, h.turn
}

// since returns the slots, the number of changes, and the slots removed after the turn before, including those that
// have returned.
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

// Set changes the slots of all sources. It does not wait for them: see Wait and WaitLeft. Slots that are held already
// must keep their boundaries. Set fails only if set has another number of slots, or another field.
func (h *Sharding) Set(set shard.Set) error {
	if want, is := h.layout, set.Layout(); want.By != is.By || want.Len() != is.Len() {
		return fmt.Errorf("cannot hold slots of %d by %s: the objects are divided into %d by %s", is.Len(), is.By,
			want.Len(), want.By)
	}
	h.change(func(shard.Set) shard.Set { return set })
	return nil
}

// Gain adds slots to those that all sources hold. It does not wait until they are listed.
func (h *Sharding) Gain(_ context.Context, slots shard.Set) error {
	h.change(func(held shard.Set) shard.Set { return held.Union(slots) })
	return nil
}

// Lose removes slots from those that all sources hold. It waits until the sinks have dropped them or ctx is done. It
// does not call its last argument.
func (h *Sharding) Lose(ctx context.Context, slots shard.Set, _ func(shard.Set)) {
	h.change(func(held shard.Set) shard.Set { return held.Minus(slots) })
	_ = h.WaitLeft(ctx) // a late drop is harmless
}

// change replaces the set of slots by the result of fn and interrupts all sources.
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
	sources := make([]shardFollower, 0, len(h.sources))
	for s := range h.sources {
		sources = append(sources, s)
	}
	h.mu.Unlock()
	for _, s := range sources {
		s.interruptScopes()
	}
}

// Wait blocks until every running source has completed the changes made before the call: lost slots are dropped, and
// gained slots are listed and passed to the Sink. It does not wait for sources that start later. If ctx is done, Wait
// returns its cause and the condition of the scopes that are behind. A Sink must not call Wait, even indirectly,
// because Wait would block on it.
func (h *Sharding) Wait(ctx context.Context) error {
	return h.wait(ctx, "to be listed", func(p slotProgress) uint64 { return p.listed })
}

// WaitLeft is Wait for lost slots only.
func (h *Sharding) WaitLeft(ctx context.Context) error {
	return h.wait(ctx, "to be let go", func(p slotProgress) uint64 { return p.left })
}

// slotProgress holds the turns of the Sharding that a scope has completed.
type slotProgress struct{ left, listed uint64 }

func (h *Sharding) wait(ctx context.Context, what string, completed func(slotProgress) uint64) error {
	_, turn := h.state()
	for {
		behind, progress := h.behind(func(p slotProgress) bool { return completed(p) < turn })
		switch {
		case len(behind) == 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("cannot wait for slots %s: %w; behind: %s", what, context.Cause(ctx),
				strings.Join(behind, ", "))
		}
		select {
		case <-progress:
		case <-ctx.Done():
		}
	}
}

// behind describes the scopes that are behind and returns the channel that closes on progress.
func (h *Sharding) behind(is func(slotProgress) bool) (behind []string, progress <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sources {
		behind = append(behind, s.behindSlots(is)...)
	}
	return behind, h.progress
}

// Unready returns the held slots that some running source has not listed, and why lists fail. The reason is "" while
// all of them make progress. A resource that the server does not serve needs no list.
func (h *Sharding) Unready() (slots shard.Set, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var causes []string
	slots = h.layout.Set()
	for s := range h.sources {
		lacking, failing := s.unreadySlots(h.set)
		slots, causes = slots.Union(lacking), append(causes, failing...)
	}
	slices.Sort(causes)
	return slots, strings.Join(causes, "; ")
}

// attach adds a running source. The returned function removes it.
func (h *Sharding) attach(s shardFollower) (detach func()) {
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
		h.notifyProgress()
	}
}

// notifyProgress wakes the waiters. It may be called on a nil Sharding.
func (h *Sharding) notifyProgress() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.progress)
	h.progress = make(chan struct{})
}
