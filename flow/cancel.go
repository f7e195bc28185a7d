package flow

import "slices"

// cancels are cancel functions to call after the lock is released, because they may run user code.
type cancels []func()

func (c cancels) run() {
	for _, call := range c {
		call()
	}
}

// cancel asks f to end as cancelled. It reports whether f could still be cancelled. The caller holds mu.
func (e *Engine) cancel(f *fiber, cause error, calls *cancels) bool {
	if f.sealed || f.progress.cancelled() {
		return false
	}
	f.ext().cause = cause
	f.progress.ending.Or(isCancelled)
	if stop := f.progress.cancelFunc(); stop != nil {
		*calls = append(*calls, func() { stop(cause) })
	}
	if f.state == Parked {
		if f.why == whyFork && f.park.fork.abandon(e, cause, calls) {
			return true // the last child to end wakes f
		}
		e.makeReady(f)
	}
	return true
}

// interrupt asks f to end as cancelled before its next step. It reports whether f could still be interrupted. The
// caller holds mu.
func (e *Engine) interrupt(f *fiber, cause error, calls *cancels) bool {
	switch {
	case f.sealed || f.progress.cancelled():
		return false
	case !f.begun || f.rests():
		return e.cancel(f, cause, calls)
	case f.progress.leaving(): // keeps the first cause, which the worker may be reading
		return true
	}
	f.ext().leave = cause
	f.progress.ending.Or(isLeaving)
	return true
}

// rests reports whether f and its children run no code and are not queued to run any. The caller holds mu.
func (f *fiber) rests() bool {
	if f.state != Parked {
		return false
	}
	return f.why != whyFork || !slices.ContainsFunc(f.park.fork.kids, func(k *fiber) bool { return k != nil && !k.rests() })
}

// abandon cancels the live children and starts no more. It reports whether a child is alive.
func (j *join) abandon(e *Engine, cause error, calls *cancels) bool {
	j.over, j.todo = true, nil
	for _, f := range j.kids {
		if f != nil {
			e.cancel(f, cause, calls)
		}
	}
	return j.alive > 0
}
