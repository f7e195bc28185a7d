package store

import (
	"slices"
	"sync"
	"sync/atomic"
)

// publisher owns the published state of a store: the current root, the change log behind it, and the cursors that read
// the log. Its lock is the writer lock of the store. All parts that change the store hold it while they build the next
// root; it is never held while user code runs. Reads of the root take no lock.
type publisher struct {
	root    atomic.Pointer[root]
	seq     atomic.Uint64 // number of entries of the change log
	isReady chan struct{} // closed when synced

	mu        sync.Mutex // guards the fields below, and the state of the parts that name the writer lock
	changes   changeLog
	defs      []*indexDef // replaced, never changed
	cursors   []*Cursor   // append-only or replaced: a copy taken under the lock may be read without it
	synced    bool
	announced bool // isReady is closed
	closed    bool
}

// root is the state that readers load; all of it belongs to one version.
type root struct {
	base   *state // as the server reported it
	merged *state // with own writes laid over it
	seq    uint64 // of the change log
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
	if len(p.cursors) == 0 {
		p.changes.seq = next.seq // no reader; later cursors start at the end
		return func() {}
	}
	before := p.changes.seq / chunkLen
	p.changes.append(batch)
	cursors := p.cursors
	if p.changes.seq/chunkLen != before {
		for _, c := range cursors {
			if read := c.read.Load(); p.changes.seq-read > maxLag+uint64(len(batch)) {
				c.fold(maxLag / 2)
			}
		}
	}
	return func() {
		for _, c := range cursors {
			c.wake()
		}
	}
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

func (p *publisher) indexDefs() []*indexDef {
	p.lock()
	defer p.unlock()
	return p.defs
}

// readers returns the present cursors. The caller must not change the slice.
func (p *publisher) readers() []*Cursor {
	p.lock()
	defer p.unlock()
	return p.cursors
}

// remove removes a cursor.
func (p *publisher) remove(c *Cursor) {
	p.lock()
	defer p.unlock()
	if i := slices.Index(p.cursors, c); i >= 0 {
		p.cursors = slices.Delete(slices.Clone(p.cursors), i, i+1)
	}
}

// close forgets the cursors, which the caller ends after releasing the writer lock.
func (p *publisher) close() (cursors []*Cursor) {
	p.closed = true
	cursors, p.cursors = p.cursors, nil
	return cursors
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
