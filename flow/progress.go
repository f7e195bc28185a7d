package flow

import (
	"context"
	"sync"
	"sync/atomic"
)

// progress is where a fiber is and how it came there: what it shares with those who look at it while it runs. Only
// the worker that runs the fiber writes it, and only by the methods of this file, which take the lock. So that worker
// may read the fields without the lock. Everybody else takes it. There is one exception: ending is set by
// Engine.cancel and Engine.interrupt, under Engine.mu, and may be read by everybody.
type progress struct {
	mu      sync.Mutex              // leaf lock
	cancel  context.CancelCauseFunc // of the context of the running step; read and written under the lock only
	began   int64                   // when the fiber was started first, on the engine's time
	entered int64                   // when its step was entered first
	since   int64                   // when its state changed last
	pc      int32                   // the step it is at
	attempt int32                   // runs of the step before this one

	ending atomic.Uint32 // isLeaving, isCancelled; never taken back
	trail  trail
}

// How a fiber is ending.
const (
	isLeaving   = 1 << iota // no further step is to begin
	isCancelled             // the context of its step has ended
)

func (p *progress) leaving() bool   { return p.ending.Load() != 0 }
func (p *progress) cancelled() bool { return p.ending.Load()&isCancelled != 0 }

// start sets when the fiber is started, before others can look.
func (p *progress) start(now int64) { p.began, p.entered, p.since = now, now, now }

// enter notes that the fiber comes to a step. entered is when it came there first: before now if the step is repeated.
func (p *progress) enter(pc, attempt int32, entered, now int64) {
	p.mu.Lock()
	p.pc, p.attempt, p.entered, p.since = pc, attempt, entered, now
	p.mu.Unlock()
}

// resume notes where a fiber is, and when it was started first, after a restart.
func (p *progress) resume(pc int32, began int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pc, p.began = pc, began
}

// note adds the outcome of a step that has just run to the trail.
func (p *progress) note(outcome op, took, now int64) {
	p.mu.Lock()
	p.trail.add(p.pc, outcome, took)
	p.since = now
	p.mu.Unlock()
}

// swapCancel sets the function that ends the context of the running step, and returns the one before.
func (p *progress) swapCancel(stop context.CancelCauseFunc) (before context.CancelCauseFunc) {
	p.mu.Lock()
	before, p.cancel = p.cancel, stop
	p.mu.Unlock()
	return before
}

// cancelFunc ends the context of the running step; nil while there is none.
func (p *progress) cancelFunc() context.CancelCauseFunc {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cancel
}

// at is the step that the fiber is at.
func (p *progress) at() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pc
}

// trailOf is the trail with the names of d.
func (p *progress) trailOf(d *def) Trail {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trail.entries(d)
}
