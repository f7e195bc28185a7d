package flow

import "iter"

// liveSet has the live fibers, oldest first. Its entries in a fiber are id, prev and next. The owner holds core.mu
// during each call.
type liveSet struct {
	ring   *fiber // a sentinel
	n      int
	lastID uint64
	empty  chan struct{} // closed when no fiber is left; created by emptied
}

func newLiveSet() liveSet {
	l := liveSet{ring: &fiber{}}
	l.ring.prev, l.ring.next = l.ring, l.ring
	return l
}

// add appends f and gives it its ID.
func (l *liveSet) add(f *fiber) {
	l.lastID++
	f.id = l.lastID
	link(f, l.ring)
	l.n++
}

func (l *liveSet) remove(f *fiber) {
	unlink(f)
	if l.n--; l.n == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

// link inserts f before next.
func link(f, next *fiber) {
	f.prev, f.next = next.prev, next
	f.prev.next, f.next.prev = f, f
}

func unlink(f *fiber) {
	f.prev.next, f.next.prev = f.next, f.prev
	f.prev, f.next = nil, nil
}

// all yields all fibers. The set does not change meanwhile.
func (l *liveSet) all() iter.Seq[*fiber] {
	return func(yield func(*fiber) bool) {
		for f := l.ring.next; f != l.ring; f = f.next {
			if f.state != cursorState && !yield(f) {
				return
			}
		}
	}
}

// emptied returns a channel that is closed when no fiber is left, or nil if none is left now.
func (l *liveSet) emptied() <-chan struct{} {
	if l.n > 0 && l.empty == nil {
		l.empty = make(chan struct{})
	}
	return l.empty
}

// cursorState marks the cursors in the ring.
const cursorState Status = 255

// liveCursor goes through the fibers that are alive when it is created. The set may change between its calls.
type liveCursor struct {
	set  *liveSet
	mark *fiber // keeps the place in the ring
	last uint64
}

// cursor returns a cursor before the first fiber. The caller closes it.
func (l *liveSet) cursor() *liveCursor {
	c := &liveCursor{set: l, mark: &fiber{state: cursorState}, last: l.lastID}
	link(c.mark, l.ring.next)
	return c
}

// read passes the next fibers to each, at most limit.
func (c *liveCursor) read(limit int, each func(*fiber)) {
	f := c.mark.next
	for n := 0; f != c.set.ring && f.id <= c.last && n < limit; f = f.next {
		if f.state != cursorState {
			each(f)
			n++
		}
	}
	unlink(c.mark)
	link(c.mark, f)
}

func (c *liveCursor) close() { unlink(c.mark) }
