package group

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/shard"
)

// handover holds the slots of one incarnation, and tells the participants which of them to work on. Only the goroutine
// of Run calls its methods, except revoke. The methods that it calls on its own goroutines say so.
type handover struct {
	participants []Participant // in the order in which they gain slots
	drain        time.Duration // Options.Drain, for leave
	clock        leasing.Clock
	log          *slog.Logger
	ctx          context.Context //nolint:containedctx // ends with the incarnation
	fence        *fence
	renewal      *leasing.Renewal // of the incarnation, for fence
	announce     func(Change)
	wake         func()      // released slots are to be written into the record
	failed       func(error) // a participant has panicked

	calls sync.WaitGroup // of participants

	// moves is the parent of the contexts of Lose. leave lets cut end it after drain.
	moves context.Context //nolint:containedctx // ends with the incarnation
	cut   context.CancelCauseFunc
	bound *time.Timer // of the drain; nil before leave

	mu       sync.Mutex // guards the fields below, and writes of fence; no other lock is acquired under it
	lost     bool
	layout   shard.Layout     // of the last record; held slots have the ranges that they were gained with
	have     map[int]*holding // held slots, until participants have released them
	released shard.Set        // by participants; the record still assigns them to this member
}

// holding is a slot that is held.
type holding struct {
	batch  *batch
	losing time.Time // since when the slot is being lost; zero if it is not
}

// batch is a set of slots that are gained together.
type batch struct {
	over  atomic.Bool   // all participants have gained them
	turn  chan struct{} // a lock with one place, for calls of Gain and for removals from slots
	slots shard.Set     // slots that are not being lost; guarded by turn
}

// gain holds slots from now on, and calls Gain of the participants.
func (h *handover) gain(slots shard.Set) {
	b := &batch{turn: make(chan struct{}, 1), slots: slots}
	h.mu.Lock()
	if h.lost || slots.IsEmpty() {
		h.mu.Unlock()
		return
	}
	for slot := range slots.Slots() {
		h.have[slot] = &holding{batch: b}
	}
	h.publishLocked()
	h.mu.Unlock()
	h.announce(Change{Kind: Gained, Slots: slots})
	h.calls.Go(func() {
		for _, p := range h.participants {
			if !h.gainFor(p, b) {
				return
			}
		}
		b.over.Store(true)
	})
}

// gainFor calls Gain of a participant for the remaining slots of a batch. It reports whether any slots remain.
func (h *handover) gainFor(p Participant, b *batch) bool {
	for attempt := 0; ; attempt++ {
		left, err := h.tryGain(p, b)
		switch {
		case left.IsEmpty():
			return false
		case err == nil:
			return true
		}
		h.log.Warn("cannot start work on slots yet", "slots", left, "error", err)
		retry := backoff.Policy{Base: 200 * time.Millisecond, Cap: 10 * time.Second}
		if backoff.Pause(h.ctx, retry.Delay(attempt, rand.Float64)) != nil {
			return false
		}
	}
}

func (h *handover) tryGain(p Participant, b *batch) (left shard.Set, err error) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.slots.IsEmpty() || h.ctx.Err() != nil {
		return shard.Set{}, nil
	}
	h.call("Gain", func() { err = p.Gain(h.ctx, b.slots) })
	return b.slots, err
}

// call calls a function of a participant. A panic ends Run, since the work that still runs is unknown. The slots are
// not handed over, and other members wait for the Lease to expire.
func (h *handover) call(name string, fn func()) (returned bool) {
	failed := func(what any) {
		h.failed(fmt.Errorf("cannot go on: %s of a participant has failed: %v", name, what))
	}
	if p := protect.CallOr(fn, func() { failed("it has ended its goroutine") }); p != nil {
		failed(p)
		return false
	}
	return true
}

// moveTimeout bounds Lose of a slot that moves while its member stays. It is the longest requestTimeout of a Webhook:
// rebalancing is not urgent, and the work of the slot can end.
const moveTimeout = 10 * time.Minute

// leave loses all slots within the drain bound, which includes those that are being lost already.
func (h *handover) leave() {
	if h.bound == nil {
		h.bound = time.AfterFunc(h.drain, func() { h.cut(ErrMoved) })
	}
	h.lose(h.held())
}

// lose makes the participants lose the slots that are not being lost already, and then releases them.
func (h *handover) lose(slots shard.Set) {
	batches := map[*batch]shard.Set{} // the nil batch has the slots for which Gain has finished
	lost := slots.Layout().Set()
	h.mu.Lock()
	for slot := range slots.Slots() {
		if one := h.have[slot]; one != nil && one.losing.IsZero() {
			one.losing = h.clock.Now()
			set, b := slots.Layout().Set(slot), one.batch
			if b.over.Load() {
				b = nil
			}
			batches[b] = set.Union(batches[b])
			lost = lost.Union(set)
		}
	}
	if !lost.IsEmpty() {
		h.publishLocked()
	}
	h.mu.Unlock()
	if lost.IsEmpty() {
		return
	}
	if h.ctx.Err() == nil {
		h.announce(Change{Kind: Moving, Slots: lost})
	}
	ctx, cancel := context.WithTimeoutCause(h.moves, moveTimeout, ErrMoved)
	var all sync.WaitGroup
	for b, slots := range batches {
		all.Go(func() {
			if b != nil {
				b.turn <- struct{}{} // waits for a running Gain
				b.slots = b.slots.Minus(slots)
				<-b.turn
			}
			h.loseFrom(ctx, len(h.participants)-1, slots)
		})
	}
	h.calls.Go(func() {
		all.Wait()
		cancel()
	})
}

// loseFrom calls Lose of participant i, and then of those added before it. It finally releases the slots.
func (h *handover) loseFrom(ctx context.Context, i int, slots shard.Set) {
	if slots.IsEmpty() {
		return
	}
	if i < 0 {
		h.release(slots)
		return
	}
	var mu sync.Mutex
	var before sync.WaitGroup
	defer before.Wait()
	take := func(part shard.Set) shard.Set {
		mu.Lock()
		defer mu.Unlock()
		part = slots.Both(part)
		slots = slots.Minus(part)
		return part
	}
	all := slots
	quiet := func(part shard.Set) {
		if part = take(part); !part.IsEmpty() {
			before.Go(func() { h.loseFrom(ctx, i-1, part) })
		}
	}
	if h.call("Lose", func() { h.participants[i].Lose(ctx, all, quiet) }) {
		h.loseFrom(ctx, i-1, take(all))
	}
}

// release ends the holding of slots. No work on them runs, and Fence refuses them from now on. It is safe for
// concurrent use.
func (h *handover) release(slots shard.Set) {
	h.mu.Lock()
	for slot := range slots.Slots() {
		delete(h.have, slot)
	}
	h.released = h.released.Union(slots)
	h.publishLocked()
	h.mu.Unlock()
	h.wake()
}

// publishLocked updates the slots for Fence. The caller holds h.mu.
func (h *handover) publishLocked() {
	if h.lost {
		return
	}
	p := &permit{slots: h.heldLocked(), moving: map[int]time.Time{}, renewal: h.renewal}
	for slot, held := range h.have {
		if !held.losing.IsZero() {
			p.moving[slot] = held.losing
		}
	}
	h.fence.open(p)
}

func (h *handover) heldLocked() shard.Set {
	held := h.layout.Set()
	for slot := range h.have {
		held = held.Union(h.layout.Set(slot))
	}
	return held
}

// held returns the held slots, including those that are being lost. It is safe for concurrent use.
func (h *handover) held() shard.Set {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heldLocked()
}

// open shows by the fence that the incarnation has a Lease, still without slots.
func (h *handover) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publishLocked()
}

// adopt takes over the boundaries of a record. The error says that they are others for held slots.
func (h *handover) adopt(l shard.Layout) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.heldLocked(); held.In(l).Len() != held.Len() {
		return fmt.Errorf("%w: slots %s have other boundaries", errRecord, held.Minus(held.In(l)))
	}
	if l != h.layout {
		h.layout = l
		h.publishLocked()
	}
	return nil
}

// follow gains the slots that the record assigns to this member, and loses those with another target. mine are the
// slots that it holds by the record, and targets those that it should hold. The error says that the record gives held
// slots to other members. The caller has called adopt.
func (h *handover) follow(mine, targets shard.Set) error {
	h.mu.Lock()
	held := h.heldLocked()
	absent := mine.Minus(held)
	// A released slot that is a target again is gained again. A slot that was never gained and has another target is
	// released.
	h.released = absent.Minus(targets)
	if !h.released.IsEmpty() {
		h.wake()
	}
	h.mu.Unlock()
	if wrong := held.Minus(mine); !wrong.IsEmpty() {
		return fmt.Errorf("%w: slots %s are held by others", errRecord, wrong)
	}
	h.gain(absent.Both(targets))
	h.lose(held.Minus(targets))
	return nil
}

// unrecorded returns the slots that participants have released and the record still assigns to this member.
func (h *handover) unrecorded() shard.Set {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.released
}

// revoke closes the fence for good. It returns the slots that were held, and first reports whether it was open before.
// It is safe for concurrent use.
func (h *handover) revoke() (held shard.Set, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost {
		return h.layout.Set(), false
	}
	h.lost = true
	h.fence.close()
	return h.heldLocked(), true
}

// close loses all slots, and waits until no call of a participant runs. The context of the incarnation has ended.
func (h *handover) close() {
	h.lose(h.held())
	h.calls.Wait()
	h.cut(nil)
	if h.bound != nil {
		h.bound.Stop()
	}
}
