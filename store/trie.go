package store

import (
	"iter"
	"math/bits"
)

// The persistent map of the store: a hash array mapped trie with the values beside the child pointers of each node
// (Bagwell, "Ideal Hash Trees", 2001; Steindorfer and Vinju, OOPSLA 2015). A trie never changes once it is published, so
// that readers need no lock and a snapshot is a pointer. A batch of changes passes an *edit: nodes made under it are changed in place.
//
// The bits of the hash are used from the top, therefore iteration is in the order of the hashes.

// element is what a trie holds. Two elements with sameKey have the same hash.
type element[T any] interface {
	comparable
	hash64() uint64
	sameKey(T) bool
}

// edit is the identity of one batch of changes.
type edit struct{ _ byte }

type trie[T element[T]] struct {
	root *node[T]
	len  int
}

type node[T element[T]] struct {
	edit   *edit
	vals   []T
	kids   []*node[T]
	valMap uint32
	kidMap uint32
}

const (
	trieBits   = 5
	trieMask   = 1<<trieBits - 1
	trieLevels = 13 // 12 levels of five bits and one of four; below it, elements of one hash are a list
)

func slot(h uint64, level int) uint32 {
	shift := 64 - trieBits*(level+1)
	if shift < 0 {
		return uint32(h) & (trieMask >> 1) // the last level has four bits
	}
	return uint32(h>>shift) & trieMask
}

func (n *node[T]) valAt(bit uint32) int { return bits.OnesCount32(n.valMap & (bit - 1)) }
func (n *node[T]) kidAt(bit uint32) int { return bits.OnesCount32(n.kidMap & (bit - 1)) }

// get returns the element with hash h that match accepts.
func (t trie[T]) get(h uint64, match func(T) bool) (found T, ok bool) {
	n := t.root
	for level := 0; n != nil; level++ {
		if level == trieLevels {
			for _, v := range n.vals {
				if match(v) {
					return v, true
				}
			}
			return found, false
		}
		bit := uint32(1) << slot(h, level)
		if n.kidMap&bit != 0 {
			n = n.kids[n.kidAt(bit)]
			continue
		}
		if n.valMap&bit == 0 {
			return found, false
		}
		if v := n.vals[n.valAt(bit)]; v.hash64() == h && match(v) {
			return v, true
		}
		return found, false
	}
	return found, false
}

// find returns the element of the same key as k.
func (t trie[T]) find(k T) (T, bool) { return t.get(k.hash64(), k.sameKey) }

// set returns t with v in place of the element of the same key, and that element.
func (t trie[T]) set(e *edit, v T) (next trie[T], old T, replaced bool) {
	if t.root == nil {
		t.root = &node[T]{edit: e}
	}
	t.root, old, replaced = t.root.set(e, 0, v.hash64(), v)
	if !replaced {
		t.len++
	}
	return t, old, replaced
}

func (n *node[T]) set(e *edit, level int, h uint64, v T) (_ *node[T], old T, replaced bool) {
	if level == trieLevels {
		for i, o := range n.vals {
			if o.sameKey(v) {
				n = n.ownVals(e)
				n.vals[i] = v
				return n, o, true
			}
		}
		n = n.shell(e)
		n.vals = inserted(n.vals, len(n.vals), v)
		return n, old, false
	}
	bit := uint32(1) << slot(h, level)
	switch {
	case n.kidMap&bit != 0:
		i := n.kidAt(bit)
		kid, old, replaced := n.kids[i].set(e, level+1, h, v)
		if kid != n.kids[i] {
			n = n.ownKids(e)
			n.kids[i] = kid
		}
		return n, old, replaced
	case n.valMap&bit == 0:
		n = n.shell(e)
		n.vals = inserted(n.vals, n.valAt(bit), v)
		n.valMap |= bit
		return n, old, false
	}
	i := n.valAt(bit)
	if o := n.vals[i]; o.hash64() == h && o.sameKey(v) {
		n = n.ownVals(e)
		n.vals[i] = v
		return n, o, true
	}
	kid := &node[T]{edit: e}
	kid, _, _ = kid.set(e, level+1, n.vals[i].hash64(), n.vals[i])
	kid, _, _ = kid.set(e, level+1, h, v)
	n = n.shell(e)
	n.vals = removed(n.vals, i)
	n.valMap &^= bit
	n.kids = inserted(n.kids, n.kidAt(bit), kid)
	n.kidMap |= bit
	return n, old, false
}

// delete returns t without the element of the same key as k, and that element.
func (t trie[T]) delete(e *edit, k T) (next trie[T], old T, ok bool) {
	if t.root == nil {
		return t, old, false
	}
	root, old, ok := t.root.delete(e, 0, k.hash64(), k)
	if !ok {
		return t, old, false
	}
	t.root, t.len = root, t.len-1
	if t.len == 0 {
		t.root = nil
	}
	return t, old, true
}

func (n *node[T]) delete(e *edit, level int, h uint64, k T) (_ *node[T], old T, ok bool) {
	if level == trieLevels {
		for i, o := range n.vals {
			if o.sameKey(k) {
				n = n.shell(e)
				n.vals = removed(n.vals, i)
				return n, o, true
			}
		}
		return n, old, false
	}
	bit := uint32(1) << slot(h, level)
	if n.kidMap&bit != 0 {
		i := n.kidAt(bit)
		kid, old, ok := n.kids[i].delete(e, level+1, h, k)
		if !ok {
			return n, old, false
		}
		if len(kid.kids) == 0 && len(kid.vals) <= 1 { // a node of one value is drawn up into its parent
			n = n.shell(e)
			n.kids = removed(n.kids, i)
			n.kidMap &^= bit
			if len(kid.vals) == 1 {
				n.vals = inserted(n.vals, n.valAt(bit), kid.vals[0])
				n.valMap |= bit
			}
			return n, old, true
		}
		n = n.ownKids(e)
		n.kids[i] = kid
		return n, old, true
	}
	if n.valMap&bit == 0 {
		return n, old, false
	}
	i := n.valAt(bit)
	o := n.vals[i]
	if o.hash64() != h || !o.sameKey(k) {
		return n, old, false
	}
	n = n.shell(e)
	n.vals = removed(n.vals, i)
	n.valMap &^= bit
	return n, o, true
}

// ownVals returns a node whose values may be written to under e, ownKids one whose children may.
func (n *node[T]) ownVals(e *edit) *node[T] {
	c := n.shell(e)
	if e == nil {
		c.vals = inserted(n.vals, -1, *new(T))
	}
	return c
}

func (n *node[T]) ownKids(e *edit) *node[T] {
	c := n.shell(e)
	if e == nil {
		c.kids = inserted(n.kids, -1, nil)
	}
	return c
}

// shell returns a node whose fields may be replaced under e, while its slices are still shared.
func (n *node[T]) shell(e *edit) *node[T] {
	if e != nil && n.edit == e {
		return n
	}
	c := *n
	c.edit = nil // its slices are not its own
	if e != nil {
		c.edit, c.vals, c.kids = e, inserted(n.vals, -1, *new(T)), inserted(n.kids, -1, nil)
	}
	return &c
}

// inserted returns a copy of s, of exact size, with v at position i (none if i is negative).
func inserted[E any](s []E, i int, v E) []E {
	if i < 0 {
		if len(s) == 0 {
			return nil
		}
		return append(make([]E, 0, len(s)), s...)
	}
	out := make([]E, len(s)+1)
	copy(out, s[:i])
	out[i] = v
	copy(out[i+1:], s[i:])
	return out
}

func removed[E any](s []E, i int) []E {
	if len(s) == 1 {
		return nil
	}
	out := make([]E, len(s)-1)
	copy(out, s[:i])
	copy(out[i:], s[i+1:])
	return out
}

// all yields every element in the order of the hashes.
func (t trie[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		it := t.iterate()
		for v, ok := it.next(); ok; v, ok = it.next() {
			if !yield(v) {
				return
			}
		}
	}
}

// walk is a position in a trie: an iterator without a goroutine.
type walk[T element[T]] struct {
	stack []step[T]
}

type step[T element[T]] struct {
	n    *node[T]
	slot int
}

func (t trie[T]) iterate() walk[T] {
	if t.root == nil {
		return walk[T]{}
	}
	return walk[T]{stack: append(make([]step[T], 0, 6), step[T]{n: t.root})}
}

func (w *walk[T]) next() (v T, ok bool) {
	for len(w.stack) > 0 {
		top := &w.stack[len(w.stack)-1]
		n := top.n
		if n.valMap == 0 && n.kidMap == 0 { // a list of elements of one hash
			if top.slot < len(n.vals) {
				top.slot++
				return n.vals[top.slot-1], true
			}
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		rest := (n.valMap | n.kidMap) >> top.slot
		if top.slot > trieMask || rest == 0 {
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		at := top.slot + bits.TrailingZeros32(rest)
		top.slot = at + 1
		bit := uint32(1) << at
		if n.valMap&bit != 0 {
			return n.vals[n.valAt(bit)], true
		}
		w.stack = append(w.stack, step[T]{n: n.kids[n.kidAt(bit)]})
	}
	return v, false
}

// seek returns a position before the first element whose hash is at least h.
func (t trie[T]) seek(h uint64) walk[T] {
	w := t.iterate()
	for n, level := t.root, 0; n != nil && level < trieLevels; level++ {
		at := int(slot(h, level))
		bit := uint32(1) << at
		top := &w.stack[len(w.stack)-1]
		top.slot = at
		if n.kidMap&bit == 0 {
			if n.valMap&bit != 0 && n.vals[n.valAt(bit)].hash64() < h {
				top.slot++
			}
			return w
		}
		top.slot++
		n = n.kids[n.kidAt(bit)]
		w.stack = append(w.stack, step[T]{n: n})
	}
	return w
}

// place is one in the order of the hashes: behind all elements of a hash, or, as the zero value, before all.
type place struct {
	hash uint64
	set  bool
}

// after returns some n elements behind a place, the place behind them, and whether there are more. So one can go through a trie that
// changes meanwhile, always in its newest version, and meets each element that was there all the time once.
func (t trie[T]) after(p place, n int) (some []T, next place, more bool) {
	for w := t.seek(p.hash); ; {
		v, ok := w.next()
		switch {
		case !ok:
			return some, next, false
		case p.set && v.hash64() <= p.hash:
			continue
		case len(some) >= n && v.hash64() != next.hash:
			return some, next, true
		}
		some, next = append(some, v), place{v.hash64(), true}
	}
}
