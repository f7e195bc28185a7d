package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/shard"
)

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
func (t *term) gain(slots shard.Set) {
	b := &batch{turn: make(chan struct{}, 1), slots: slots}
	t.mu.Lock()
	if t.lost || slots.IsEmpty() {
		t.mu.Unlock()
		return
	}
	for slot := range slots.Slots() {
		t.have[slot] = &holding{batch: b}
	}
	t.publishLocked()
	t.mu.Unlock()
	t.g.note(Change{Kind: Gained, Slots: slots})
	t.work.Go(func() {
		for _, p := range t.g.participants {
			if !t.tell(p, b) {
				return
			}
		}
		b.over.Store(true)
	})
}

// tell calls Gain of a participant for the remaining slots of a batch. It reports whether any slots remain.
func (t *term) tell(p Participant, b *batch) bool {
	for attempt := 0; ; attempt++ {
		left, err := t.try(p, b)
		switch {
		case left.IsEmpty():
			return false
		case err == nil:
			return true
		}
		t.g.log.Warn("cannot start work on slots yet", "slots", left, "error", err)
		retry := backoff.Policy{Base: 200 * time.Millisecond, Cap: 10 * time.Second}
		if backoff.Pause(t.ctx, retry.Delay(attempt, rand.Float64)) != nil {
			return false
		}
	}
}

func (t *term) try(p Participant, b *batch) (left shard.Set, err error) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.slots.IsEmpty() || t.ctx.Err() != nil {
		return t.g.layout.Set(), nil
	}
	t.guard("Gain", func() { err = p.Gain(t.ctx, b.slots) })
	return b.slots, err
}

// guard calls a function of a participant. A panic ends Run, since the work that still runs is unknown. The slots are
// not handed over, and other members wait for the Lease to expire.
func (t *term) guard(name string, fn func()) (returned bool) {
	failed := func(what any) {
		t.g.fail(fmt.Errorf("cannot go on: %s of a participant has failed: %v", name, what), t)
	}
	if p := protect.CallOr(fn, func() { failed("it has ended its goroutine") }); p != nil {
		failed(p)
		return false
	}
	return true
}

// lose makes the participants lose the slots that are not being lost already, and then releases them.
func (t *term) lose(slots shard.Set) {
	batches := map[*batch]shard.Set{} // the nil batch has the slots for which Gain has finished
	lost := t.g.layout.Set()
	t.mu.Lock()
	for slot := range slots.Slots() {
		if h := t.have[slot]; h != nil && h.losing.IsZero() {
			h.losing = t.g.clock.Now()
			one, b := t.g.layout.Set(slot), h.batch
			if b.over.Load() {
				b = nil
			}
			batches[b] = one.Union(batches[b])
			lost = lost.Union(one)
		}
	}
	t.mu.Unlock()
	if lost.IsEmpty() {
		return
	}
	if t.ctx.Err() == nil {
		t.g.note(Change{Kind: Moving, Slots: lost})
	}
	ctx, cancel := context.WithTimeoutCause(t.ctx, t.g.opt.Drain, ErrMoved)
	var all sync.WaitGroup
	for b, slots := range batches {
		all.Go(func() {
			if b != nil {
				b.turn <- struct{}{} // waits for a running Gain
				b.slots = b.slots.Minus(slots)
				<-b.turn
			}
			t.loseFrom(ctx, len(t.g.participants)-1, slots)
		})
	}
	t.work.Go(func() {
		all.Wait()
		cancel()
	})
}

// loseFrom calls Lose of participant i, and then of those added before it. It finally releases the slots.
func (t *term) loseFrom(ctx context.Context, i int, slots shard.Set) {
	if slots.IsEmpty() {
		return
	}
	if i < 0 {
		t.letGo(slots)
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
			before.Go(func() { t.loseFrom(ctx, i-1, part) })
		}
	}
	if t.guard("Lose", func() { t.g.participants[i].Lose(ctx, all, quiet) }) {
		t.loseFrom(ctx, i-1, take(all))
	}
}

// letGo ends the holding of slots. No work on them runs, and Fence refuses them from now on. It is safe for concurrent
// use.
func (t *term) letGo(slots shard.Set) {
	t.mu.Lock()
	for slot := range slots.Slots() {
		delete(t.have, slot)
	}
	t.quiet = t.quiet.Union(slots)
	t.publishLocked()
	t.mu.Unlock()
	t.g.wake()
}

// publishLocked updates the slots for Fence. The caller holds t.mu.
func (t *term) publishLocked() {
	if !t.lost {
		t.g.holds.Store(&holds{t.heldLocked(), t})
	}
}

func (t *term) heldLocked() shard.Set {
	held := t.g.layout.Set()
	for slot := range t.have {
		held = held.Union(t.g.layout.Set(slot))
	}
	return held
}

// held returns the held slots, including those that are being lost. It is safe for concurrent use.
func (t *term) held() shard.Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heldLocked()
}

// follow applies the record: it gains slots that the record assigns to this member, and loses those with another
// target.
func (t *term) follow(r *record, leaving bool) {
	mine, targets := r.heldBy(t.id), r.targetsOf(t.id)
	if leaving {
		targets = t.g.layout.Set()
	}
	t.mu.Lock()
	held := t.heldLocked()
	absent := mine.Minus(held)
	// A released slot that is a target again is gained again. A slot that was never gained and has another target is
	// released.
	t.quiet = absent.Minus(targets)
	if !t.quiet.IsEmpty() {
		t.g.wake()
	}
	t.mu.Unlock()
	if wrong := held.Minus(mine); !wrong.IsEmpty() {
		t.fail(fmt.Errorf("%w: slots %s are held by others", errRecord, wrong))
		return
	}
	t.gain(absent.Both(targets))
	t.lose(held.Minus(targets))
}

// letGone returns the slots that participants have released and the record still assigns to this member.
func (t *term) letGone() shard.Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quiet
}
