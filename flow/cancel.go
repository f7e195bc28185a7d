package flow

import "slices"

// cancels are cancel functions to be called once the lock is released: they may wake user code.
type cancels []func()

func (c cancels) run() {
	for _, call := range c {
		call()
	}
}

// cancel asks f to end as cancelled, and says whether that came in time. Under mu.
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
			return true // the last child wakes it
		}
		e.makeReady(f)
	}
	return true
}

// interrupt asks f to end as cancelled before its next step, and says whether that came in time. Under mu.
func (e *Engine) interrupt(f *fiber, cause error, calls *cancels) bool {
	switch {
	case f.sealed || f.progress.cancelled():
		return false
	case !f.begun || f.rests():
		return e.cancel(f, cause, calls)
	case f.progress.leaving(): // the first cause counts: the worker may be reading it
		return true
	}
	f.ext().leave = cause
	f.progress.ending.Or(isLeaving)
	return true
}

// rests says that no code of the fiber runs or is about to, nor that of its children. Under mu.
func (f *fiber) rests() bool {
	if f.state != Parked {
		return false
	}
	return f.why != whyFork || !slices.ContainsFunc(f.park.fork.kids, func(k *fiber) bool { return k != nil && !k.rests() })
}

// abandon cancels the children that are alive, starts no more, and says whether any is alive.
func (j *join) abandon(e *Engine, cause error, calls *cancels) bool {
	j.over, j.todo = true, nil
	for _, f := range j.kids {
		if f != nil {
			e.cancel(f, cause, calls)
		}
	}
	return j.alive > 0
}
