package flow

// Engine.gates maps each key to its newest live fiber. The live fibers of a key form a chain: pred is the previous
// fiber, succ the next one. Only the first fiber of the chain runs. A fiber that is cancelled while it waits leaves the
// chain. If A, B and C start in quick succession, the chain becomes A, C, and C never runs beside A.

// passGate puts f into the chain of its key, or refuses it. wait reports that another fiber is before f. The caller
// holds mu.
func (e *Engine) passGate(f *fiber, opt StartOptions, calls *cancels) (wait bool, err error) {
	e.epoch++
	f.epoch = e.epoch
	if f.key == "" {
		if opt.IfCurrent.f != nil {
			return false, ErrNotCurrent
		}
		return false, nil
	}
	cur := e.gates[f.key]
	if opt.IfCurrent.f != nil && (cur == nil || opt.IfCurrent.f.root() != cur) {
		return false, ErrNotCurrent
	}
	if cur == nil {
		e.gates[f.key] = f
		return false, nil
	}
	switch opt.Mode {
	case SkipIfBusy:
		if opt.IfCurrent.f == nil {
			return false, ErrBusy
		}
	case Coalesce:
		for p := cur; p != nil && !p.begun; p = p.pred() {
			e.cancel(p, ErrCoalesced, calls)
		}
	default:
		for p := cur; p != nil; p = p.pred() {
			if e.cancel(p, ErrPreempted, calls) {
				e.preempt.Add(1)
			}
		}
	}
	e.gates[f.key] = f
	x := f.ext()
	x.pred = cur
	cur.ext().succ = f
	if x.durable != nil {
		x.durable.fresh, x.durable.dirty = true, true // the predecessor's position must not be resumed
	}
	return true, nil
}

// leaveGate removes f, whose code has returned, from the chain of its key. It wakes the successor if that is now the
// first. The caller holds mu.
func (e *Engine) leaveGate(f *fiber) {
	if f.key == "" || f.join != nil {
		return
	}
	var pred, succ *fiber
	left := false
	if x := f.x.Load(); x != nil {
		left = x.durable != nil && x.durable.left
		pred, succ = x.pred, x.succ
		x.pred, x.succ = nil, nil
	}
	if pred != nil {
		pred.x.Load().succ = succ
	}
	switch {
	case succ != nil:
		next := succ.x.Load()
		next.pred = pred
		if left && next.durable != nil {
			next.durable.fresh = false // resumes where f was
		}
		if pred == nil {
			e.poke(succ, pokeGate)
		}
	case pred != nil:
		e.gates[f.key] = pred
	default:
		delete(e.gates, f.key)
	}
}
