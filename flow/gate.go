package flow

// The gate: gates maps each key to its newest live fiber, and fibers of a key stand in a chain: pred is the one before,
// succ the one after. Only the first of the chain runs. A fiber in the middle that ends, having been cancelled while it
// waited, leaves the chain; so A, B, C in quick succession becomes A, C, and C never starts beside A.

// passGate puts f into the chain of its key, or refuses it; wait tells that another one is before it. Under mu.
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
		x.durable.fresh, x.durable.dirty = true, true // its predecessor's position is not its own
	}
	return true, nil
}

// leaveGate takes f, whose code has returned, out of the chain of its key, and wakes the successor if that is first
// now. Under mu.
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
			next.durable.fresh = false // it goes on where this one was
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
