package store

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// ledger records own writes to recognize their echoes. A controller's own write comes back as an event, which would
// only make it reconcile once more. A cursor with SubscribeOptions.HoldWrites does not get such an echo; every other
// cursor gets all events.
//
// While a write is in flight (from BeginWrite until Done, Deleted or Fail), the cursors of its owner hold back changes
// of that key, which may be its echo. Then each held change is judged. It is an echo, and dropped, only if all of this
// holds:
//
//   - Its version is that of the answer to a write made by the same owner for the same primary (WriteContext).
//   - It is a modification, or the addition of an object that this write created.
//   - The state before it, as delivered, is the base of that write or another own version.
//   - The answer differs from the base only in fields that were written, by this write or by others of the same owner
//     and primary since the base (see pure).
//   - It did not come by a list, whose changes may span several versions, and was not folded with others.
//
// A deletion is an echo if the answer to a delete of the same owner and primary said that this incarnation is gone. No
// other client can have deleted it: the request would have failed. As above, the deletion must not come by a list.
// Cursors without SubscribeOptions.HoldDeletes get every
// deletion, and changes held before it are given with it.
//
// If any of the changes held together is not an echo, all are given as one modification from the oldest to the newest.
// An answer with the version of the base is not recorded, because the write changed no field. If a foreign write made
// the same change first, the answer has a foreign version, and the comparison of its content fails.
//
// A dropped echo counts as given: it is the Prior of the next event.
//
// When the server's history is rolled back, the same versions may come again with other content. The ledger then
// forgets earlier writes and does not record those in flight.
//
// If the ledger forgets too early, or judges too strictly, that costs one more reconciliation. It never hides a foreign
// change.
type ledger struct {
	mu      sync.Mutex // after the writer lock and Cursor.mu
	windows map[Key]*window
	begun   int // writes since the last sweep
}

// window is the own writes to one key.
type window struct {
	sent []*WriteContext // writes that are not answered yet
	own  []ownWrite
}

// ownWrite is one answered write.
type ownWrite struct {
	owner   string
	primary Key
	ver     version
	base    version
	created bool
	deleted types.UID // the incarnation that a delete has removed; "" for other writes, whose version is known
	sent    []byte    // the body, if the write was not locked
	applied uint64    // upper bound of the log position at which the base got the write; 0: not yet
}

// WriteContext describes a write: its owner, and the state that it was computed from.
type WriteContext struct {
	// Owner names the writing controller. If empty, the event of the write is given to all cursors.
	Owner string
	// Primary is the object whose reconciliation makes the write.
	Primary Key
	// Base is the state that the write was computed from; nil for a create.
	Base *Record
	// Create is set if the request creates the object, so that no object existed before.
	Create bool
	// Locked is set if the request carries the version of Base, so that no other write came in between.
	Locked bool
	// Subresource is the name of the subresource, such as "status"; empty for the object itself.
	Subresource string
	// Sent is the body of a request that is not Locked: a merge patch or an apply, as JSON. Without it the echo is
	// given.
	Sent []byte
}

// sweepEvery is the number of writes after which the ledger is swept.
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

// begin records a write that is about to be sent, and reports whether a sweep is due.
func (l *ledger) begin(k Key, w *WriteContext) (sweep bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	win := l.window(k)
	win.sent = append(win.sent, w)
	l.begun++
	return l.begun >= sweepEvery
}

// end removes a write that is not in flight any more.
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

// record records the answer to a write. The caller holds the writer lock, so that no event of the write is judged
// earlier.
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

// recordDeletion records that a delete has removed an incarnation. The write is in flight until later, so that no event
// is judged earlier.
func (l *ledger) recordDeletion(k Key, w *WriteContext, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	win := l.window(k)
	win.own = append(win.own, ownWrite{owner: w.Owner, primary: w.Primary, deleted: uid})
}

// beside returns the bodies of other unlocked writes of the same owner and primary that the answer to a write may
// contain: those in flight, and those recorded since its base. With more than maxBeside of them it returns none,
// because the comparison would be too expensive.
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

// maxBeside bounds the number of other writes that an answer is compared with.
const maxBeside = 64

// inFlight reports whether a write of that owner to that key is not answered yet.
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

// isEcho reports whether a change is the echo of a recorded write.
func (l *ledger) isEcho(ch *change, owner string, primary Key) bool {
	if ch.relist || ch.typ != Added && ch.typ != Modified && ch.typ != Deleted {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	win := l.windows[ch.obj.Key()]
	if win == nil {
		return false
	}
	if ch.typ == Deleted {
		return slices.ContainsFunc(win.own, func(o ownWrite) bool {
			return o.deleted == ch.obj.UID() && o.owner == owner && o.primary == primary
		})
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
		if o := &win.own[i]; o.deleted == "" && o.ver.equal(ver) && o.owner == owner && o.primary == primary {
			return o
		}
	}
	return nil
}

// sweep forgets the writes whose echo every cursor of their owner has judged. judged is the log position, by owner,
// that all its cursors have reached, and next is the position of the next entry. applied reports whether the base has
// seen a write to an object. Writes to objects that are not watched are forgotten.
func (l *ledger) sweep(judged map[string]uint64, next uint64, applied func(Key, *ownWrite) (yes, watched bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = 0
	for k, win := range l.windows {
		kept := win.own[:0]
		for _, o := range win.own {
			at, listening := judged[o.owner]
			seen, watched := applied(k, &o)
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

// dropScope forgets the writes to a namespace, or all if ns is "". Changes held because of them are then given.
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

// release forgets the answers to writes of objects that have left. If an object comes back, its cursors get all its
// events.
func (l *ledger) release(gone func(Key) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, win := range l.windows {
		if gone(k) {
			win.own = nil
			l.tidy(k, win)
		}
	}
}
