package store

import (
	"sync"
	"sync/atomic"
)

// publisher owns the published state of a store: the current root and the change log behind it. Its lock is the writer
// lock of the store. All parts that change the store hold it while they build the next root; it is never held while
// user code runs. Reads of the root take no lock.
type publisher struct {
	root    atomic.Pointer[root]
	seq     atomic.Uint64 // number of entries of the change log
	isReady chan struct{} // closed when synced

	mu        sync.Mutex // guards the fields below, and the state of the parts that name the writer lock
	changes   changeLog
	defs      []*indexDef // replaced, never changed
	follower  follower    // nil: no cursor will ever read the log
	synced    bool
	announced bool // isReady is closed
	closed    bool
}

// follower is told of new entries in the log. The subscriptions of a store implement it.
type follower interface {
	// isIdle reports whether no cursor reads the log. The caller holds the writer lock.
	isIdle() bool
	// appended is called when the log has grown from one length to another. The caller holds the writer lock, and calls
	// wake after releasing it.
	appended(from, to uint64) (wake func())
}

func (p *publisher) init() {
	p.changes, p.isReady = newLog(), make(chan struct{})
	empty := &state{}
	p.root.Store(&root{base: empty, merged: empty})
}

// lock takes the writer lock.
func (p *publisher) lock() { p.mu.Lock() }

func (p *publisher) unlock() { p.mu.Unlock() }

// current returns the root that readers see now.
func (p *publisher) current() *root { return p.root.Load() }

// end returns the position after the last entry of the log. The caller holds the writer lock.
func (p *publisher) end() position { return p.changes.end() }

// publish makes next visible, then appends the changes that led to it to the log. The caller holds the writer lock, and
// calls wake after releasing it.
func (p *publisher) publish(next root, batch []change) (wake func()) {
	next.seq = p.changes.seq + uint64(len(batch))
	p.seq.Store(next.seq) // first, so that no reader is ever ahead of it
	p.root.Store(&next)
	if p.synced && !p.announced { // after the root: a waiter finds the listed objects
		p.announced = true
		close(p.isReady)
	}
	if len(batch) == 0 {
		return func() {}
	}
	if p.follower == nil || p.follower.isIdle() {
		p.changes.seq = next.seq // no reader; later cursors start at the end
		return func() {}
	}
	from := p.changes.seq
	p.changes.append(batch)
	return p.follower.appended(from, next.seq)
}

// publishBase publishes a base without own writes over it, and without changes. The caller holds the writer lock.
func (p *publisher) publishBase() {
	base := p.current().base
	p.publish(root{base: base, merged: base}, nil)
}

// editBoth publishes edited copies of the base and the merged state. While both are the same, it edits one copy. The
// caller holds the writer lock.
func (p *publisher) editBoth(edit func(*state)) {
	cur := p.current()
	next := root{base: cur.base.copy()}
	edit(next.base)
	next.merged = next.base
	if cur.merged != cur.base {
		next.merged = cur.merged.copy()
		edit(next.merged)
	}
	p.publish(next, nil)
}

// indexes returns the definitions of the indexes. The caller holds the writer lock, and must not change the slice.
func (p *publisher) indexes() []*indexDef { return p.defs }

// setIndexes replaces the definitions of the indexes. The caller holds the writer lock.
func (p *publisher) setIndexes(defs []*indexDef) { p.defs = defs }

// hasIndexes reports whether objects that are staged for defs are staged for all indexes. The caller holds the writer
// lock.
func (p *publisher) hasIndexes(defs []*indexDef) bool { return sameDefs(defs, p.defs) }

// isSynced reports whether the store is synced, or becomes so with the next root. The caller holds the writer lock.
func (p *publisher) isSynced() bool { return p.synced }

// setSynced makes the store synced with the next root. The caller holds the writer lock.
func (p *publisher) setSynced() { p.synced = true }

// close reports whether the store was open. The caller holds the writer lock.
func (p *publisher) close() (first bool) {
	first = !p.closed
	p.closed = true
	return first
}

// isClosed reports whether the store is closed. The caller holds the writer lock.
func (p *publisher) isClosed() bool { return p.closed }

// indexDefs is indexes for a caller without the lock.
func (p *publisher) indexDefs() []*indexDef {
	p.lock()
	defer p.unlock()
	return p.defs
}

// HasSynced reports whether every scope that the server does not refuse to list has been listed once.
func (p *publisher) HasSynced() bool {
	select {
	case <-p.isReady:
		return true
	default:
		return false
	}
}

// Synced returns a channel that is closed when HasSynced becomes true.
func (p *publisher) Synced() <-chan struct{} { return p.isReady }
