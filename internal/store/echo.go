package store

import (
	"log/slog"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// echoFilter keeps the echoes of one owner's writes from a cursor; see ledger. It holds back the changes of a key while
// a write to the key is in flight. It has no lock: only Take of its cursor uses it.
type echoFilter struct {
	ledger    *ledger
	owner     string                         // SubscribeOptions.HoldWrites
	deletes   bool                           // SubscribeOptions.HoldDeletes
	primaryOf func(*Record) (k Key, ok bool) // nil: each object is its own primary
	logger    *slog.Logger
	name      string // of the subscriber
	keys      map[Key]*held
}

// held is the change of one key while a write to it is in flight.
type held struct {
	delta delta
	steps []*change // judged when the write is answered; nil once one is known to be foreign
	plain bool      // one of the changes is foreign
}

// maxSteps bounds the changes of a key that are held to be judged. With more of them, all count as foreign.
const maxSteps = 32

// add decides about the next change of the log. pass is true for a change to deliver as it is. If due is not nil, it is
// delivered instead. Otherwise the change is held back, or dropped as an echo.
func (f *echoFilter) add(ch *change) (due *delta, pass bool) {
	k := ch.obj.Key()
	h := f.keys[k]
	if h == nil && !f.ledger.inFlight(k, f.owner) {
		return nil, !f.isEcho(ch)
	}
	if h == nil {
		h = &held{delta: delta{key: k}}
		f.keys[k] = h
	}
	h.delta.fold(ch)
	if ch.typ == Deleted && !f.deletes || ch.typ == Left { // never held
		delete(f.keys, k)
		return &h.delta, false
	}
	if len(h.steps) == maxSteps {
		h.plain, h.steps = true, nil
	}
	if !h.plain {
		h.steps = append(h.steps, ch)
	}
	return nil, false
}

// addDelta adds a folded delta to the held changes of its key. It reports false if none are held.
func (f *echoFilter) addDelta(d *delta) bool {
	h := f.keys[d.key]
	if h == nil {
		return false
	}
	h.delta.then(d)
	h.plain, h.steps = true, nil
	return true
}

// release judges the held changes of keys whose writes are answered. It calls deliver for those that are no echoes,
// until full returns true.
func (f *echoFilter) release(full func() bool, deliver func(*delta)) {
	for k, h := range f.keys {
		if full() {
			return
		}
		if f.ledger.inFlight(k, f.owner) {
			continue
		}
		delete(f.keys, k)
		foreign := h.plain
		for _, ch := range h.steps {
			foreign = foreign || !f.isEcho(ch)
		}
		if foreign {
			deliver(&h.delta)
		}
	}
}

// isHolding reports whether changes are held back.
func (f *echoFilter) isHolding() bool { return f != nil && len(f.keys) > 0 }

// canRelease reports whether release has keys to judge.
func (f *echoFilter) canRelease() bool {
	for k := range f.keys {
		if !f.ledger.inFlight(k, f.owner) {
			return true
		}
	}
	return false
}

func (f *echoFilter) isEcho(ch *change) bool {
	if ch.typ == Deleted && !f.deletes {
		return false
	}
	primary, ok := f.primary(ch.obj)
	if !ok {
		return false
	}
	if ch.prior != nil {
		if before, ok := f.primary(ch.prior); !ok || before != primary {
			return false
		}
	}
	return f.ledger.isEcho(ch, f.owner, primary)
}

// primary calls the function of the subscriber.
func (f *echoFilter) primary(r *Record) (k Key, ok bool) {
	if f.primaryOf == nil {
		return r.Key(), true
	}
	if p := protect.Call(func() { k, ok = f.primaryOf(r) }); p != nil {
		f.logger.Error("a subscriber's function for primaries panicked", "subscriber", f.name, "key", r.Key(),
			"panic", p.Value)
		return Key{}, false
	}
	return k, ok
}
