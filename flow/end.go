package flow

// end ends the fiber: callback first, then everything that waits for it. It is called again, to no effect, if the callback ends
// its goroutine.
func (r *run) end(status Status, err error) {
	e, f := r.e, r.f
	r.stopContext()
	e.mu.Lock()
	if f.sealed {
		e.mu.Unlock()
		return
	}
	f.sealed = true
	if f.cancelled.Load() {
		status = Cancelled
	}
	e.timers.remove(f)
	f.seq++
	e.mu.Unlock()
	if status == Cancelled {
		err = &CancelError{Path: f.path(), Key: f.Key(), Cause: f.x.Load().cause}
		if len(f.flow.steps) > 0 {
			r.record(opCancel)
		}
	}
	if err != nil {
		f.ext().err = err
	}
	defer r.settle(status, err)
	r.dropWaits()
	r.saveEnd(status, err)
	r.logEnd(status, err)
	r.endTrace(status, err)
	r.callBack(Result{Handle: Handle{f}, Status: status, Err: err, Begun: f.begun})
}

func (r *run) callBack(res Result) {
	if r.f.onEnd == nil {
		return
	}
	if err := r.f.guard(func() error { r.f.onEnd(res); return nil }); err != nil {
		r.logPanic(err)
	}
}

// settle makes the end known: to the key's successor, the parent, and those who wait.
func (r *run) settle(status Status, err error) {
	e, f := r.e, r.f
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
