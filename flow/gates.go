package flow

// gates order the live fibers of each key. The fibers of a key form a chain, of which only the first one runs. A fiber
// that is cancelled while it waits leaves the chain. If A, B and C start in quick succession, the chain becomes A, C,
// and C never runs beside A.
//
// Their entries in a fiber are epoch and extra.gate. The owner holds core.mu during each call.
type gates struct {
	newest map[string]*fiber // the last fiber of each chain
	epoch  uint64
}

// number gives f the next epoch.
func (g *gates) number(f *fiber) {
	g.epoch++
	f.epoch = g.epoch
}

// last returns the last fiber of the chain of a key, or nil.
func (g *gates) last(key string) *fiber { return g.newest[key] }

// add appends f to the chain of its key. It reports whether another fiber is before f.
func (g *gates) add(f *fiber) (waits bool) {
	last := g.newest[f.key]
	g.newest[f.key] = f
	if last == nil {
		return false
	}
	f.ext().gate.pred, last.ext().gate.succ = last, f
	return true
}

// remove takes f, whose code has returned, from the chain of its key. It returns the fiber after f, if there is one,
// and whether that is now the first.
func (g *gates) remove(f *fiber) (succ *fiber, first bool) {
	var own gateEntry
	if x := f.x.Load(); x != nil {
		own, x.gate = x.gate, gateEntry{}
	}
	if own.pred != nil {
		own.pred.x.Load().gate.succ = own.succ
	}
	switch {
	case own.succ != nil:
		own.succ.x.Load().gate.pred = own.pred
	case own.pred != nil:
		g.newest[f.key] = own.pred
	default:
		delete(g.newest, f.key)
	}
	return own.succ, own.pred == nil
}

// before returns the fiber before f, or nil.
func before(f *fiber) *fiber {
	if x := f.x.Load(); x != nil {
		return x.gate.pred
	}
	return nil
}

// holder returns the first fiber of the chain of f, or nil if that is f.
func holder(f *fiber) (first *fiber) {
	for p := before(f); p != nil; p = before(p) {
		first = p
	}
	return first
}
