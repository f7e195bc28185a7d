package store

import "github.com/fairlead-io/fairlead/internal/protect"

// holding is the changes that a cursor with HoldWrites holds back; see ledger. Only Take accesses it.
type holding struct {
	keys map[Key]*held
}

// held is the change of one key while a write to it is in flight.
type held struct {
	delta delta
	steps []*change // judged when the write is answered; nil once one is known to be foreign
	plain bool      // one of the changes is foreign
}

// maxSteps bounds the changes of a key that are held to be judged. With more of them, all count as foreign.
const maxSteps = 32

// withholds reports whether a change is held back, or dropped as an echo.
func (c *Cursor) withholds(ch *change) bool {
	k := ch.obj.Key()
	h := c.hold.keys[k]
	if h == nil && !c.s.ledger.inFlight(k, c.opt.HoldWrites) {
		return c.isEcho(ch)
	}
	if h == nil {
		h = &held{delta: delta{key: k}}
		c.hold.keys[k] = h
	}
	h.delta.fold(ch)
	if ch.typ == Deleted || ch.typ == Left { // a deletion is never held
		delete(c.hold.keys, k)
		c.giveDelta(&h.delta)
		return true
	}
	if len(h.steps) == maxSteps {
		h.plain, h.steps = true, nil
	}
	if !h.plain {
		h.steps = append(h.steps, ch)
	}
	return true
}

// withholdsDelta adds a folded delta to the held changes of its key. It reports false if none are held.
func (c *Cursor) withholdsDelta(d *delta) bool {
	h := c.hold.keys[d.key]
	if h == nil {
		return false
	}
	h.delta.then(d)
	h.plain, h.steps = true, nil
	return true
}

// fillReleased judges the held changes of keys whose writes are answered.
func (c *Cursor) fillReleased(max int) {
	for k, h := range c.hold.keys {
		if len(c.out) >= max {
			return
		}
		if c.s.ledger.inFlight(k, c.opt.HoldWrites) {
			continue
		}
		delete(c.hold.keys, k)
		foreign := h.plain
		for _, ch := range h.steps {
			foreign = foreign || !c.isEcho(ch)
		}
		if foreign {
			c.giveDelta(&h.delta)
		}
	}
	if len(c.hold.keys) == 0 {
		c.settled.Store(c.read.Load())
	}
}

// released reports whether fillReleased has keys to judge.
func (h *holding) released(c *Cursor) bool {
	for k := range h.keys {
		if !c.s.ledger.inFlight(k, c.opt.HoldWrites) {
			return true
		}
	}
	return false
}

func (c *Cursor) isEcho(ch *change) bool {
	primary, ok := c.primaryOf(ch.obj)
	if !ok {
		return false
	}
	if ch.prior != nil {
		if before, ok := c.primaryOf(ch.prior); !ok || before != primary {
			return false
		}
	}
	return c.s.ledger.isEcho(ch, c.opt.HoldWrites, primary)
}

func (c *Cursor) primaryOf(r *Record) (k Key, ok bool) {
	if c.opt.PrimaryOf == nil {
		return r.Key(), true
	}
	if p := protect.Call(func() { k, ok = c.opt.PrimaryOf(r) }); p != nil {
		c.s.logger.Error("a subscriber's function for primaries panicked", "subscriber", c.opt.Name, "key", r.Key(),
			"panic", p.Value)
		return Key{}, false
	}
	return k, ok
}
