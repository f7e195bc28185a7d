// Package trie provides a persistent map: a hash array mapped trie with the values beside the child pointers of each
// node (Bagwell, "Ideal Hash Trees", 2001; Steindorfer and Vinju, OOPSLA 2015). A [Map] never changes, so readers need
// no lock and a snapshot is a copy of the Map. A batch of changes shares one [Edit]: nodes made under it are modified
// in place.
//
// The trie uses the bits of the hash from the top, so iteration is in the order of the hashes.
package trie

import (
	"iter"
	"math/bits"
)

// Keys defines the key of an element. Its implementation must be stateless, because the map uses the zero value of the
// type. Elements with equal keys must have equal hashes.
type Keys[T any] interface {
	Hash(T) uint64
	Same(a, b T) bool
}

func hash[T any, K Keys[T]](v T) uint64 {
	var k K
	return k.Hash(v)
}

func same[T any, K Keys[T]](a, b T) bool {
	var k K
	return k.Same(a, b)
}

// Edit identifies one batch of changes by one goroutine, before other goroutines see the maps. With a nil Edit each
// change copies.
type Edit struct{ _ byte }

// Map is one version of a set of elements with distinct keys. The zero value is empty.
type Map[T any, K Keys[T]] struct {
	root *node[T, K]
	len  int
}

// Len returns the number of elements.
func (t Map[T, K]) Len() int { return t.len }

type node[T any, K Keys[T]] struct {
	edit   *Edit
	vals   []T
	kids   []*node[T, K]
	valMap uint32
	kidMap uint32
}

const (
	trieBits   = 5
	trieMask   = 1<<trieBits - 1
	trieLevels = 13 // 12 levels of five bits and one of four; below them, elements of equal hash are a list
)

func slot(h uint64, level int) uint32 {
	shift := 64 - trieBits*(level+1)
	if shift < 0 {
		return uint32(h) & (trieMask >> 1) // the last level has four bits
	}
	return uint32(h>>shift) & trieMask
}

func (n *node[T, K]) valAt(bit uint32) int { return bits.OnesCount32(n.valMap & (bit - 1)) }
func (n *node[T, K]) kidAt(bit uint32) int { return bits.OnesCount32(n.kidMap & (bit - 1)) }

// Get returns the element with hash h that match accepts.
func (t Map[T, K]) Get(h uint64, match func(T) bool) (found T, ok bool) {
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
		if v := n.vals[n.valAt(bit)]; hash[T, K](v) == h && match(v) {
			return v, true
		}
		return found, false
	}
	return found, false
}

// Find returns the element with the key of k.
func (t Map[T, K]) Find(k T) (T, bool) {
	return t.Get(hash[T, K](k), func(v T) bool { return same[T, K](v, k) })
}

// Set returns t with v in place of the element with the same key, and that element.
func (t Map[T, K]) Set(e *Edit, v T) (next Map[T, K], old T, replaced bool) {
	if t.root == nil {
		t.root = &node[T, K]{edit: e}
	}
	t.root, old, replaced = t.root.set(e, 0, hash[T, K](v), v)
	if !replaced {
		t.len++
	}
	return t, old, replaced
}

func (n *node[T, K]) set(e *Edit, level int, h uint64, v T) (_ *node[T, K], old T, replaced bool) {
	if level == trieLevels {
		for i, o := range n.vals {
			if same[T, K](o, v) {
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
	if o := n.vals[i]; hash[T, K](o) == h && same[T, K](o, v) {
		n = n.ownVals(e)
		n.vals[i] = v
		return n, o, true
	}
	kid := &node[T, K]{edit: e}
	kid, _, _ = kid.set(e, level+1, hash[T, K](n.vals[i]), n.vals[i])
	kid, _, _ = kid.set(e, level+1, h, v)
	n = n.shell(e)
	n.vals = removed(n.vals, i)
	n.valMap &^= bit
	n.kids = inserted(n.kids, n.kidAt(bit), kid)
	n.kidMap |= bit
	return n, old, false
}

// Delete returns t without the element with the key of k, and that element.
func (t Map[T, K]) Delete(e *Edit, k T) (next Map[T, K], old T, ok bool) {
	if t.root == nil {
		return t, old, false
	}
	root, old, ok := t.root.delete(e, 0, hash[T, K](k), k)
	if !ok {
		return t, old, false
	}
	t.root, t.len = root, t.len-1
	if t.len == 0 {
		t.root = nil
	}
	return t, old, true
}

func (n *node[T, K]) delete(e *Edit, level int, h uint64, k T) (_ *node[T, K], old T, ok bool) {
	if level == trieLevels {
		for i, o := range n.vals {
			if same[T, K](o, k) {
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
		if len(kid.kids) == 0 && len(kid.vals) <= 1 { // a node with one value moves into its parent
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
	if hash[T, K](o) != h || !same[T, K](o, k) {
		return n, old, false
	}
	n = n.shell(e)
	n.vals = removed(n.vals, i)
	n.valMap &^= bit
	return n, o, true
}

// ownVals returns a node whose values may be modified under e; ownKids returns one whose children may be.
func (n *node[T, K]) ownVals(e *Edit) *node[T, K] {
	c := n.shell(e)
	if e == nil {
		c.vals = inserted(n.vals, -1, *new(T))
	}
	return c
}

func (n *node[T, K]) ownKids(e *Edit) *node[T, K] {
	c := n.shell(e)
	if e == nil {
		c.kids = inserted(n.kids, -1, nil)
	}
	return c
}

// shell returns a node whose fields may be replaced under e. Its slices are still shared.
func (n *node[T, K]) shell(e *Edit) *node[T, K] {
	if e != nil && n.edit == e {
		return n
	}
	c := *n
	c.edit = nil // its slices are shared
	if e != nil {
		c.edit, c.vals, c.kids = e, inserted(n.vals, -1, *new(T)), inserted(n.kids, -1, nil)
	}
	return &c
}

// inserted returns a copy of s of exact size with v inserted at position i, or without v if i is negative.
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

// All yields every element in the order of the hashes.
func (t Map[T, K]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		it := t.Iterate()
		for v, ok := it.Next(); ok; v, ok = it.Next() {
			if !yield(v) {
				return
			}
		}
	}
}

// Walk is an iterator over a map.
type Walk[T any, K Keys[T]] struct {
	stack []step[T, K]
}

type step[T any, K Keys[T]] struct {
	n    *node[T, K]
	slot int
}

// Iterate returns a Walk before the first element.
func (t Map[T, K]) Iterate() Walk[T, K] {
	if t.root == nil {
		return Walk[T, K]{}
	}
	return Walk[T, K]{stack: append(make([]step[T, K], 0, 6), step[T, K]{n: t.root})}
}

// Next returns the next element; ok is false after the last one.
func (w *Walk[T, K]) Next() (v T, ok bool) {
	for len(w.stack) > 0 {
		top := &w.stack[len(w.stack)-1]
		n := top.n
		if n.valMap == 0 && n.kidMap == 0 { // elements of equal hash
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
		w.stack = append(w.stack, step[T, K]{n: n.kids[n.kidAt(bit)]})
	}
	return v, false
}

// Seek returns a Walk before the first element whose hash is at least h.
func (t Map[T, K]) Seek(h uint64) Walk[T, K] {
	w := t.Iterate()
	for n, level := t.root, 0; n != nil && level < trieLevels; level++ {
		at := int(slot(h, level))
		bit := uint32(1) << at
		top := &w.stack[len(w.stack)-1]
		top.slot = at
		if n.kidMap&bit == 0 {
			if n.valMap&bit != 0 && hash[T, K](n.vals[n.valAt(bit)]) < h {
				top.slot++
			}
			return w
		}
		top.slot++
		n = n.kids[n.kidAt(bit)]
		w.stack = append(w.stack, step[T, K]{n: n})
	}
	return w
}

// Place is a position in the order of the hashes: after all elements of a hash, or, as the zero value, before all
// elements.
type Place struct {
	hash uint64
	set  bool
}

// After returns about n elements after a place, the next place, and whether there are more elements. A caller can
// iterate over a changing map with it, always in its newest version. It receives each element that is present
// throughout exactly once.
func (t Map[T, K]) After(p Place, n int) (some []T, next Place, more bool) {
	for w := t.Seek(p.hash); ; {
		v, ok := w.Next()
		switch {
		case !ok:
			return some, next, false
		case p.set && hash[T, K](v) <= p.hash:
			continue
		case len(some) >= n && hash[T, K](v) != next.hash:
			return some, next, true
		}
		some, next = append(some, v), Place{hash[T, K](v), true}
	}
}
