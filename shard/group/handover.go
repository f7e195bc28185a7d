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
	ctx    context.Context //nolint:containedctx // it is what work on the slot is given
	end    context.CancelCauseFunc
	batch  *batch
	losing time.Time // since when; zero: not
}

// batch is slots that are gained together.
type batch struct {
	over  atomic.Bool   // all participants have gained them
	turn  chan struct{} // has room for who calls Gain, or takes slots out
	slots shard.Set     // that are not to be lost; of who has the turn
}

// gain holds slots from now on, and tells the participants.
func (t *term) gain(slots shard.Set) {
	b := &batch{turn: make(chan struct{}, 1), slots: slots}
	t.mu.Lock()
	if t.lost || slots.IsEmpty() {
		t.mu.Unlock()
		return
	}
	for slot := range slots.Slots() {
		h := &holding{batch: b}
		h.ctx, h.end = context.WithCancelCause(t.ctx)
		t.have[slot] = h
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

// tell has a participant gain what is left of a batch; it is false when nothing is.
func (t *term) tell(p Participant, b *batch) bool {
	for attempt := 0; ; attempt++ {
		left, err := t.try(p, b)
		switch {
		case left.IsEmpty():
			return false
		case err == nil:
			return true
		}
		t.g.log.Warn("slots cannot be worked on yet", "slots", left, "error", err)
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

// guard calls a function of a participant. One that panics ends this program's part in the group, since nobody knows
// what of it runs: nothing is handed over, and others wait for the Lease.
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

// lose has the participants lose those of some slots that are not being lost already, and lets them go.
func (t *term) lose(slots shard.Set) {
	batches := map[*batch]shard.Set{} // nil: those that nobody gains any more
	lost := t.g.layout.Set()
	var ends []context.CancelCauseFunc
	t.mu.Lock()
	for slot := range slots.Slots() {
		if h := t.have[slot]; h != nil && h.losing.IsZero() {
			h.losing = t.g.clock.now()
			one, b := t.g.layout.Set(slot), h.batch
			if b.over.Load() {
				b = nil
			}
			batches[b] = one.Union(batches[b])
			lost, ends = lost.Union(one), append(ends, h.end)
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
	forget := context.AfterFunc(ctx, func() {
		for _, end := range ends {
			end(context.Cause(ctx))
		}
	})
	var all sync.WaitGroup
	for b, slots := range batches {
		all.Go(func() {
			if b != nil {
				b.turn <- struct{}{} // after a Gain that is under way
				b.slots = b.slots.Minus(slots)
				<-b.turn
			}
			t.loseFrom(ctx, len(t.g.participants)-1, slots)
		})
	}
	t.work.Go(func() {
		all.Wait()
		forget()
		cancel()
	})
}

// loseFrom has a participant, and then those added before it, lose slots.
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

// letGo ends the holding of slots: nothing of them runs, and nothing is sent for them from now on. It is safe for
// concurrent use.
func (t *term) letGo(slots shard.Set) {
	t.mu.Lock()
	var ends []context.CancelCauseFunc
	for slot := range slots.Slots() {
		ends = append(ends, t.have[slot].end)
		delete(t.have, slot)
	}
	t.quiet = t.quiet.Union(slots)
	t.publishLocked()
	t.mu.Unlock()
	for _, end := range ends {
		end(ErrMoved)
	}
	t.g.wake()
}

// publishLocked has Fence let through what is held.
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

// held returns what is held, also what is being lost. It is safe for concurrent use.
func (t *term) held() shard.Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heldLocked()
}

// context returns that of a slot. It is safe for concurrent use.
func (t *term) context(slot int) (context.Context, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.have[slot]
	if h == nil {
		return nil, false
	}
	return h.ctx, true
}

// follow does what the record says: what it gives is gained, what is to be another one's is lost.
func (t *term) follow(r *record, leaving bool) {
	mine, targets := r.heldBy(t.id), r.targetsOf(t.id)
	if leaving {
		targets = t.g.layout.Set()
	}
	t.mu.Lock()
	held := t.heldLocked()
	absent := mine.Minus(held)
	// What was let go and is to be ours again is gained again; what was never gained and is to be another one's is let go.
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

// letGone returns what participants have let go and the record still has as ours.
func (t *term) letGone() shard.Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quiet
}
