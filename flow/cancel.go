package flow

// cancels are cancel functions to be called once the lock is released: they may wake user code.
type cancels []func()

func (c cancels) run() {
	for _, call := range c {
		call()
	}
}

// cancel asks f to end as cancelled, and says whether that came in time. Under mu.
func (e *Engine) cancel(f *fiber, cause error, calls *cancels) bool {
	if f.sealed || f.look.cancelled.Load() {
		return false
	}
	f.ext().cause = cause
	f.look.cancelled.Store(true)
	if stop := f.look.cancelFunc(); stop != nil {
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
