package flow

// arm has the context of the step end at its deadline, or that of the fiber; it returns an error if that has passed.
func (r *run) arm() error {
	at := r.deadlines()
	switch {
	case at == 0 && !r.timed:
		return nil
	case r.fiberLate():
		return errFiberLate
	case at > 0 && r.now >= at:
		return errDeadline
	}
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if r.ctx.Err() != nil { // the deadline was that of the step before
		r.openContext()
	}
	if r.timed = at > 0; r.timed {
		r.e.setTimer(r.f, at)
	} else {
		r.e.timers.remove(r.f)
	}
	return nil
}

// deadline is when the time of the step is over, 0 if it has no limit.
func (r *run) deadline() int64 {
	if d := r.f.step().deadline; d > 0 {
		return plus(r.f.entered, d)
	}
	return 0
}

// deadlines is when the time of the step or of the fiber is over.
func (r *run) deadlines() int64 {
	at := r.deadline()
	if x := r.f.x.Load(); x != nil && x.deadline > 0 && (at == 0 || x.deadline < at) {
		at = x.deadline
	}
	return at
}

func (r *run) earliest(at int64) int64 {
	if limit := r.deadlines(); limit > 0 && (at == 0 || limit < at) {
		return limit
	}
	return at
}

func (r *run) fiberLate() bool {
	x := r.f.x.Load()
	return x != nil && x.deadline > 0 && r.now >= x.deadline
}
