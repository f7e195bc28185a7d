package store

import (
	"slices"
	"sync"
)

// The ledger of own writes. A controller's own write comes back as an event, which would only make it reconcile once
// more. A cursor that asks for it (SubscribeOptions.HoldWrites) is not given such an echo; every other cursor is
// given everything.
//
// While a write is in flight (BeginWrite until Done, Deleted or Fail), changes of that key are held back from the
// cursors of its owner, for they may be its echo. Then each held change is judged. It is an echo, and dropped, only
// if all of this holds:
//
//   - its version is that of the answer to a write made by the same owner for the same primary (WriteContext);
//   - it is a modification, or the addition of an object that this write created; a deletion never is an echo, and
//     what is held before one is given with it;
//   - the state before it, as delivered, is the base of that write, or another own version;
//   - the answer differs from the base only in what was written, by this write or by others of the same owner and
//     primary since the base (see pure);
//   - it did not come by a list, whose changes may span several, and was not folded with others.
//
// Changes held together of which any is no echo are given as one modification from the oldest to the newest. An
// answer with the version of the base (nothing was changed) is not recorded at all; one with a foreign version
// (nothing was changed, but somebody else was faster) fails the test of its content.
//
// A dropped echo counts as given: it is the Prior of the next event.
//
// When the history of the server goes back, the same versions may come again with other content: what was written
// before is forgotten, and what was under way is not recorded.
//
// What the ledger forgets too early, or judges too strictly, costs one more reconciliation; it never hides a foreign
// change.
type ledger struct {
	mu      sync.Mutex // after Store.mu and Cursor.mu
	windows map[Key]*window
	begun   int // writes since the last sweep
}

// window is what is known of own writes to one key.
type window struct {
	sent []*WriteContext // of writes that are not answered yet
	own  []ownWrite
}

// ownWrite is one answered write.
type ownWrite struct {
	owner   string
	primary Key
	ver     version
	base    version
	created bool
	sent    []byte // the body, if the write was not locked
	applied uint64 // the change log was at least here when the base had the write; 0: not yet
}

// WriteContext says who makes a write, and from what it was computed.
type WriteContext struct {
	// Owner names the writing controller; empty: the write is nobody's, and its event is given to all.
	Owner string
	// Primary is the object in whose reconciliation the write is made.
	Primary Key
	// Base is the state that the write was computed from; nil for a create.
	Base *Record
	// Create says that the request creates the object, so that nothing can have been there before.
	Create bool
	// Locked says that the request carries the version of Base, so that nothing can have happened in between.
	Locked bool
	// Subresource is "status" and the like; empty for the object itself.
	Subresource string
	// Sent is the body of a request that is not Locked: a merge patch or an apply, as JSON. Without it the echo is
	// given.
	Sent []byte
}

// sweepEvery is after how many writes the ledger looks for what it can forget.
const sweepEvery = 64

func (l *ledger) init() { l.windows = map[Key]*window{} }

func (l *ledger) window(k Key) *window {
	win := l.windows[k]
	if win == nil {
		win = &window{}
		l.windows[k] = win
	}
	return win
}

func (l *ledger) tidy(k Key, win *window) {
	if len(win.sent) == 0 && len(win.own) == 0 {
		delete(l.windows, k)
	}
}

// begin notes a write that is about to be sent, and says whether it is time to sweep.
func (l *ledger) begin(k Key, w *WriteContext) (sweep bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	win := l.window(k)
	win.sent = append(win.sent, w)
	l.begun++
	return l.begun >= sweepEvery
}

// end notes that a write is not in flight any more.
func (l *ledger) end(k Key, w *WriteContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if win := l.windows[k]; win != nil {
		if i := slices.Index(win.sent, w); i >= 0 {
			win.sent = slices.Delete(win.sent, i, i+1)
		}
		l.tidy(k, win)
	}
}

// record notes the answer; the caller holds Store.mu, so that no event of it is judged before.
func (l *ledger) record(w *WriteContext, rec *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	win := l.window(rec.Key())
	o := ownWrite{owner: w.Owner, primary: w.Primary, ver: rec.ver, created: w.Create, sent: w.Sent}
	if w.Base != nil {
		o.base = w.Base.ver
	}
	win.own = append(win.own, o)
}

// beside returns the bodies of the other writes without a lock, of the same owner and primary, that the answer to a write
// may contain: those in flight, and those that were recorded since its base.
// With more than maxBeside of them it returns none: what they have changed together is too dear to find out.
func (l *ledger) beside(k Key, w *WriteContext) (bodies [][]byte) {
	if w.Owner == "" || w.Locked || w.Base == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	win := l.windows[k]
	if win == nil {
		return nil
	}
	for _, other := range win.sent {
		if other != w && other.Owner == w.Owner && other.Primary == w.Primary && len(other.Sent) > 0 {
			bodies = append(bodies, other.Sent)
		}
	}
	for _, o := range win.own {
		if o.owner == w.Owner && o.primary == w.Primary && len(o.sent) > 0 && !w.Base.ver.atLeast(o.ver) {
			bodies = append(bodies, o.sent)
		}
	}
	if len(bodies) > maxBeside {
		return nil
	}
	return bodies
}

// maxBeside bounds how many other writes the answer to one is compared with.
const maxBeside = 64

// inFlight says whether a write of that owner to that key is not answered yet.
func (l *ledger) inFlight(k Key, owner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	win := l.windows[k]
	if win == nil {
		return false
	}
	for _, w := range win.sent {
		if w.Owner == owner {
			return true
		}
	}
	return false
}

// isEcho says whether a change is the echo of a recorded write.
func (l *ledger) isEcho(ch *change, owner string, primary Key) bool {
	if ch.relist || ch.typ != Added && ch.typ != Modified {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	win := l.windows[ch.obj.Key()]
	if win == nil {
		return false
	}
	own := win.find(ch.obj.ver, owner, primary)
	switch {
	case own == nil:
		return false
	case ch.typ == Added:
		return own.created
	case own.created:
		return false
	}
	return ch.prior.ver.equal(own.base) || win.find(ch.prior.ver, owner, primary) != nil
}

func (win *window) find(ver version, owner string, primary Key) *ownWrite {
	for i := range win.own {
		if o := &win.own[i]; o.ver.equal(ver) && o.owner == owner && o.primary == primary {
			return o
		}
	}
	return nil
}

// sweep forgets the writes whose echo every cursor of their owner has judged: judged says, by owner, how far all of
// them have come in the change log, of which next is the number that comes next. applied says whether the base has
// seen a version of an object; what is not watched need not be remembered.
func (l *ledger) sweep(judged map[string]uint64, next uint64, applied func(Key, version) (yes, watched bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = 0
	for k, win := range l.windows {
		kept := win.own[:0]
		for _, o := range win.own {
			at, listening := judged[o.owner]
			seen, watched := applied(k, o.ver)
			if !watched || !listening {
				continue
			}
			if o.applied == 0 && seen {
				o.applied = next
			}
			if o.applied == 0 || at+1 < o.applied {
				kept = append(kept, o)
			}
		}
		clear(win.own[len(kept):])
		win.own = kept
		l.tidy(k, win)
	}
}

// dropScope forgets the writes to a namespace, or all for "": what is held because of them is given.
func (l *ledger) dropScope(ns string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, win := range l.windows {
		if ns == "" || k.Namespace == ns {
			win.own = nil
			l.tidy(k, win)
		}
	}
}
