package flow

import "slices"

// cancels are cancel functions to call after the lock is released, because they may run user code.
type cancels []func()

func (c cancels) run() {
	for _, call := range c {
		call()
	}
}

// cancel asks f to end as cancelled. It reports whether f could still be cancelled. The caller holds core.mu.
func cancel(f *fiber, cause error, calls *cancels) bool {
	if f.sealed || f.progress.cancelled() {
		return false
	}
	f.ext().cause = cause
	f.progress.ending.Or(isCancelled)
	if stop := f.progress.cancelFunc(); stop != nil {
		*calls = append(*calls, func() { stop(cause) })
	}
	if f.state == Parked {
		if f.why == whyFork && abandon(f.park.fork, cause, calls) {
			return true // the last child to end wakes f
		}
		f.e.sched.wake(f)
	}
	return true
}

// interrupt asks f to end as cancelled before its next step. It reports whether f could still be interrupted. The
// caller holds core.mu.
func interrupt(f *fiber, cause error, calls *cancels) bool {
	switch {
	case f.sealed || f.progress.cancelled():
		return false
	case !f.begun || rests(f):
		return cancel(f, cause, calls)
	case f.progress.interrupted(): // keeps the first cause, which the worker may be reading
		return true
	}
	f.ext().interruption = cause
	f.progress.ending.Or(isInterrupted)
	return true
}

// rests reports whether f and its children run no code and are not queued to run any. The caller holds core.mu.
func rests(f *fiber) bool {
	if f.state != Parked {
		return false
	}
	return f.why != whyFork || !slices.ContainsFunc(f.park.fork.kids, func(k *fiber) bool { return k != nil && !rests(k) })
}

// abandon cancels the live children of a fork, which starts no more. It reports whether a child is alive. The caller
// holds core.mu.
func abandon(j *join, cause error, calls *cancels) bool {
	j.stop()
	j.todo = nil
	for _, f := range j.kids {
		if f != nil {
			cancel(f, cause, calls)
		}
	}
	return j.alive > 0
}
