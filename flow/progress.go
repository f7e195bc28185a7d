package flow

import (
	"context"
	"sync"
	"sync/atomic"
)

// progress is the current step and the history of a fiber. Other goroutines read it while the fiber runs. Only the
// worker that runs the fiber writes it, by the methods of this file, which take the lock. That worker may therefore
// read the fields without the lock; every other goroutine takes it. There is one exception: cancel and interrupt
// set ending under core.mu, and any goroutine may read it.
type progress struct {
	mu      sync.Mutex              // leaf lock: no other lock is taken while it is held
	cancel  context.CancelCauseFunc // cancels the running step's context; accessed under mu only
	began   int64                   // when the fiber was first started, in the engine's time
	entered int64                   // when its step was first entered
	since   int64                   // when its state last changed
	pc      int32                   // the current step
	attempt int32                   // number of earlier runs of the step

	ending atomic.Uint32 // isInterrupted and isCancelled; bits are never cleared
	trail  trail
}

// Bits of progress.ending.
const (
	isInterrupted = 1 << iota // the fiber begins no further step
	isCancelled               // the context of the step is cancelled
)

func (p *progress) interrupted() bool { return p.ending.Load() != 0 }
func (p *progress) cancelled() bool   { return p.ending.Load()&isCancelled != 0 }

// start sets the start time. The fiber is not shared yet, so it takes no lock.
func (p *progress) start(now int64) { p.began, p.entered, p.since = now, now, now }

// enter records that the fiber enters a step. entered is the first entry, which is before now if the step is repeated.
func (p *progress) enter(pc, attempt int32, entered, now int64) {
	p.mu.Lock()
	p.pc, p.attempt, p.entered, p.since = pc, attempt, entered, now
	p.mu.Unlock()
}

// resume sets the step and the first start time after a restart.
func (p *progress) resume(pc int32, began int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pc, p.began = pc, began
}

// note adds the outcome of the step to the trail.
func (p *progress) note(outcome op, took, now int64) {
	p.mu.Lock()
	p.trail.add(p.pc, outcome, took)
	p.since = now
	p.mu.Unlock()
}

// swapCancel sets the function that cancels the context of the running step, and returns the previous one.
func (p *progress) swapCancel(stop context.CancelCauseFunc) (before context.CancelCauseFunc) {
	p.mu.Lock()
	before, p.cancel = p.cancel, stop
	p.mu.Unlock()
	return before
}

// cancelFunc returns the function that cancels the context of the running step, or nil.
func (p *progress) cancelFunc() context.CancelCauseFunc {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cancel
}

// at returns the current step.
func (p *progress) at() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pc
}

// progressSnapshot is a copy of the fields of progress.
type progressSnapshot struct {
	began, entered, since int64
	pc, attempt           int32
	trail                 trail
}

func (p *progress) snapshot() progressSnapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return progressSnapshot{
		began: p.began, entered: p.entered, since: p.since, pc: p.pc, attempt: p.attempt, trail: p.trail,
	}
}
