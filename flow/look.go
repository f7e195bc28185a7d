package flow

import (
	"context"
	"sync"
	"sync/atomic"
)

// look is what a fiber shares with those who look at it while it runs. Only the worker that runs the fiber writes it, and only
// by the methods of this file, which take the lock. So that worker may read the fields without the lock; everybody else takes
// it. cancelled is the exception: Engine.cancel sets it, under Engine.mu, and everybody may read it.
type look struct {
	mu      sync.Mutex              // leaf lock
	cancel  context.CancelCauseFunc // of the context of the running step; read and written under the lock only
	began   int64                   // when the fiber was started first, on the engine's time
	entered int64                   // when its step was entered first
	since   int64                   // when its state changed last
	pc      int32                   // the step it is at
	attempt int32                   // runs of the step before this one

	cancelled atomic.Bool // set once
	trail     trail
}

// start sets when the fiber is started, before others can look.
func (l *look) start(now int64) { l.began, l.entered, l.since = now, now, now }

// enter notes that the fiber comes to a step. entered is when it came there first: before now if the step is repeated.
func (l *look) enter(pc, attempt int32, entered, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pc, l.attempt, l.entered, l.since = pc, attempt, entered, now
}

// resume notes where a fiber is, and when it was started first, after a restart.
func (l *look) resume(pc int32, began int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pc, l.began = pc, began
}

// note adds the outcome of a step that has just run to the trail.
func (l *look) note(outcome op, took, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trail.add(l.pc, outcome, took)
	l.since = now
}

// swapCancel sets the function that ends the context of the running step, and returns the one before.
func (l *look) swapCancel(stop context.CancelCauseFunc) (before context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.cancel = l.cancel, stop
	return before
}

// cancelFunc ends the context of the running step; nil while there is none.
func (l *look) cancelFunc() context.CancelCauseFunc {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cancel
}

// at is the step that the fiber is at.
func (l *look) at() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pc
}

// trailOf is the trail with the names of d.
func (l *look) trailOf(d *def) Trail {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trail.entries(d)
}
