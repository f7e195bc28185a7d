// Package handover counts the work of one participant of a group by slot, and ends it when slots are lost.
//
// A participant (group.Participant) is a registry of observers, a controller or an executor. Its [Slots] guarantee:
//
//   - Enter admits work only for a slot between Gain and Lose.
//   - Wait reports each slot that Lose was called for exactly once, when no work of the slot is in progress.
//   - Work in progress continues until the context of Wait ends, and is cancelled then.
//   - The contexts of a slot end before the slot is reported.
package handover

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/shard"
)

// Slots are the slots of a participant and the work on them. A participant without sharding has nil Slots: they hold
// every object and count nothing. Slots are safe for concurrent use, and call no other package under their lock except
// base.
type Slots struct {
	moved  error
	base   func(slot int) context.Context
	layout atomic.Pointer[shard.Layout] // of held; mu guards writes

	mu    sync.Mutex
	held  shard.Set // slots between Gain and Lose
	slots []slot
}

// slot is the state of one slot. Slots.mu guards it, but held may be read without.
type slot struct {
	held   atomic.Bool
	work   int        // pieces of work in progress
	tenure *Tenure    // nil before the first work since Gain
	quiet  chan<- int // receives the slot once, when work is 0; nil unless a Drain waits
}

// Tenure is the time from Gain to the end of the drain.
type Tenure struct {
	Context context.Context //nolint:containedctx // of the work on the slot; it ends early if the work is cut off
	Stay    context.Context //nolint:containedctx // ends as soon as the slot begins to leave
	end     context.CancelCauseFunc
	leave   context.CancelCauseFunc
}

// New returns Slots of which none is held. base returns the parent of the contexts of a slot. It must only derive a
// context. It may be nil. moved is the cause of their end, unless work is cut off.
func New(layout shard.Layout, moved error, base func(slot int) context.Context) *Slots {
	s := &Slots{moved: moved, base: base, slots: make([]slot, layout.Len()), held: layout.Set()}
	s.layout.Store(&layout)
	return s
}

// Layout returns how objects are divided into slots, with the newest boundaries of slots that were gained.
func (s *Slots) Layout() shard.Layout { return *s.layout.Load() }

// SlotOf returns the slot of an object. The boundaries of slots that are not held may change, so the number is certain
// only during work on the object. See [Slots.Find] and [Slots.EnterFor].
func (s *Slots) SlotOf(namespace string, uid types.UID) int {
	if s == nil {
		return 0
	}
	return s.Layout().SlotOf(namespace, uid)
}

// Find returns the slot of an object, and whether it is held and does not leave. It takes no lock.
func (s *Slots) Find(namespace string, uid types.UID) (slot int, held bool) {
	if s == nil {
		return 0, true
	}
	for {
		l := s.layout.Load()
		slot = l.SlotOf(namespace, uid)
		held = s.Holds(slot)
		if s.layout.Load() == l { // otherwise held may be of other boundaries: Gain stores them first
			return slot, held
		}
	}
}

// Gain admits work on slots.
func (s *Slots) Gain(slots shard.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = s.held.Union(slots)
	if l := s.held.Layout(); l != s.Layout() {
		s.layout.Store(&l)
	}
	for slot := range slots.Slots() {
		s.slots[slot].held.Store(true)
	}
}

// Holds reports whether a slot is held and does not leave. It takes no lock.
func (s *Slots) Holds(slot int) bool { return s == nil || s.slots[slot].held.Load() }

// Enter begins a piece of work if the slot is held. The caller must then call Leave. The Tenure is nil without base.
func (s *Slots) Enter(slot int) (t *Tenure, ok bool) {
	if s == nil {
		return nil, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enterLocked(slot)
}

// EnterFor is Enter for the slot of an object, which it returns for Leave.
func (s *Slots) EnterFor(namespace string, uid types.UID) (slot int, t *Tenure, ok bool) {
	if s == nil {
		return 0, nil, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot = s.SlotOf(namespace, uid)
	t, ok = s.enterLocked(slot)
	return slot, t, ok
}

func (s *Slots) enterLocked(slot int) (t *Tenure, ok bool) {
	own := &s.slots[slot]
	if !own.held.Load() {
		return nil, false
	}
	own.work++
	if own.tenure == nil && s.base != nil {
		t := &Tenure{}
		t.Context, t.end = context.WithCancelCause(s.base(slot))
		t.Stay, t.leave = context.WithCancelCause(t.Context)
		own.tenure = t
	}
	return own.tenure, true
}

// Add begins a piece of work in any case, for example one that belongs to other work in progress. The caller must then
// call Leave.
func (s *Slots) Add(slot int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[slot].work++
}

// Leave ends a piece of work.
func (s *Slots) Leave(slot int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := &s.slots[slot]
	if own.work--; own.work == 0 && own.quiet != nil {
		own.rest(s.moved)
		own.quiet <- slot // never blocks: it has room for all slots of the Drain
		own.quiet = nil
	}
}

// rest ends the tenure of a slot without work.
func (own *slot) rest(cause error) {
	if own.tenure != nil {
		own.tenure.end(cause)
		own.tenure = nil
	}
}

// Drain is the end of the work on slots that are lost.
type Drain struct {
	slots *Slots
	idle  shard.Set // slots without work
	busy  shard.Set
	quiet <-chan int
}

// Lose admits no more work on slots. The caller must then call Wait. Until Wait has reported a slot, neither Gain nor
// Lose may be called for it.
func (s *Slots) Lose(slots shard.Set) *Drain {
	quiet := make(chan int, slots.Len())
	d := &Drain{slots: s, idle: slots, busy: slots.Layout().Set(), quiet: quiet}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = s.held.Minus(slots)
	for slot := range slots.Slots() {
		own := &s.slots[slot]
		own.held.Store(false)
		if own.work == 0 {
			own.rest(s.moved)
			continue
		}
		if own.tenure != nil {
			own.tenure.leave(s.moved)
		}
		own.quiet = quiet
		d.busy = d.busy.Union(slots.Layout().Set(slot))
	}
	d.idle = d.idle.Minus(d.busy)
	return d
}

// Wait returns when no work on the slots is in progress. It reports the slots to quiet as soon as they have none. If
// ctx ends before, Wait cancels the contexts of the other slots and calls cut, which may be nil, once with them.
func (d *Drain) Wait(ctx context.Context, cut func(slots shard.Set, cause error), quiet func(shard.Set)) {
	if !d.idle.IsEmpty() {
		quiet(d.idle)
	}
	over := ctx.Done()
	for !d.busy.IsEmpty() {
		select {
		case slot := <-d.quiet:
			own := d.busy.Layout().Set(slot)
			d.busy = d.busy.Minus(own)
			quiet(own)
		case <-over:
			over = nil
			d.slots.cancel(d.busy, context.Cause(ctx))
			if cut != nil {
				cut(d.busy, context.Cause(ctx))
			}
		}
	}
}

func (s *Slots) cancel(slots shard.Set, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slot := range slots.Slots() {
		if t := s.slots[slot].tenure; t != nil {
			t.end(cause)
		}
	}
}
