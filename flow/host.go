package flow

import "context"

// The methods of this file carry out what the interpreter decides (see host in run.go). They take core.mu.

// resume prepares f, which a worker has picked up.
func (l *lifecycle) resume(f *fiber, now int64) { l.spans.resume(f, now) }

// setBegun records whether f has passed the gate.
func (l *lifecycle) setBegun(f *fiber, begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.begun = begun
}

// runStep runs the code of a step.
func (l *lifecycle) runStep(ctx context.Context, f *fiber, st *step) Next {
	if l.hook == nil {
		return l.spans.runStep(ctx, f, st)
	}
	l.hook(Handle{f}, f.path(), false)
	n := l.spans.runStep(ctx, f, st)
	l.hook(Handle{f}, f.path(), true)
	return n
}

// arm makes the context of the running step of f end at the given time (0: never). ended reports that ctx had ended
// before.
func (l *lifecycle) arm(ctx context.Context, f *fiber, at int64) (ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended = ctx.Err() != nil
	l.sched.setTimer(f, at)
	return ended
}

// park parks f until it is poked, or until the given time (0: never). It returns false if f was cancelled, or poked
// with one of wake, in the meantime. After true f no longer belongs to the worker.
func (l *lifecycle) park(f *fiber, why reason, at int64, wake pokes) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.poke&wake != 0 || mustEnd(f) {
		return false
	}
	l.sched.park(f, why, at)
	l.spans.park(f)
	return true
}

// mustEnd reports whether f, which is about to park, must end instead. The caller holds core.mu.
func mustEnd(f *fiber) bool {
	if f.progress.interrupted() {
		cancel(f, f.x.Load().interruption, &cancels{}) // no step runs, so there is no context to cancel
	}
	return f.progress.cancelled()
}

// yield queues f for a worker.
func (l *lifecycle) yield(f *fiber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sched.wake(f)
}

// fork parks f, which waits for its children in p, and starts them. It returns false if f was cancelled.
func (l *lifecycle) fork(f *fiber, p *parking, at int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mustEnd(f) {
		return false
	}
	f.park = p
	l.sched.park(f, whyFork, at)
	l.spans.park(f)
	l.startChildren(p.fork)
	return true
}

// abandonFork cancels the live children of f and parks f again. It returns false if no child is alive. f was picked up
// because it was cancelled or its deadline has passed.
func (l *lifecycle) abandonFork(f *fiber) bool {
	var calls cancels
	defer func() { calls.run() }()
	l.mu.Lock()
	defer l.mu.Unlock()
	j := f.park.fork
	if j.alive == 0 {
		return false
	}
	cause := ErrTimeout
	if f.progress.cancelled() {
		cause = f.x.Load().cause
	} else {
		j.late = true
	}
	l.sched.park(f, whyFork, 0)
	l.spans.park(f)
	abandon(j, cause, &calls)
	return true
}

// cancel cancels f, whose step is not running.
func (l *lifecycle) cancel(f *fiber, cause error) { Handle{f}.Cancel(cause) }
