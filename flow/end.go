package flow

// end ends the fiber. It runs the callback first, then notifies waiters. began is when the last activity of the fiber
// began. A second call, which happens if the callback ends its goroutine, has no effect.
func (f *fiber) end(status Status, err error, began int64) {
	e := f.e
	f.stopContext()
	e.mu.Lock()
	if f.sealed {
		e.mu.Unlock()
		return
	}
	f.sealed = true
	e.timers.remove(f)
	f.seq++
	e.mu.Unlock()
	if f.progress.cancelled() {
		cause := f.x.Load().cause
		if status = Cancelled; f.is(cause, ErrMoved) {
			status = Moved
		}
		err = &cancelError{Path: f.path(), Key: f.Key(), Cause: cause}
		if len(f.flow.steps) > 0 {
			f.noteOutcome(opCancel, began)
		}
	}
	if err != nil {
		f.ext().err = err
	}
	defer f.settle(status, err)
	f.dropWaits()
	f.saver().ended(status, err)
	f.logEnd(status, err)
	f.endTrace(status, err)
	f.callBack(Result{Handle: Handle{f}, Status: status, Err: err, Begun: f.begun})
}

func (f *fiber) callBack(res Result) {
	if f.onEnd == nil {
		return
	}
	if err := f.guard(func() error { f.onEnd(res); return nil }); err != nil {
		f.logPanic(err)
	}
}

// settle publishes the end of the fiber to the key's successor, to the parent, and to callers of Done and Wait.
func (f *fiber) settle(status Status, err error) {
	e := f.e
	var calls cancels
	e.mu.Lock()
	f.state, f.why, f.worker = status, whyNone, 0
	f.park = nil
	e.timers.remove(f)
	e.remove(f)
	e.leaveGate(f)
	e.ready.leave(f.part)
	f.flow.ended(status)
	e.flows.release(f.flow)
	x := f.x.Load()
	if x != nil && x.done != nil {
		close(x.done)
	}
	if f.join != nil {
		f.join.childEnded(e, f, status, err, &calls)
	}
	e.mu.Unlock()
	calls.run()
}
