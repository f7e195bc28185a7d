package store

import (
	"hash/maphash"
	"iter"
)

// facetKind is one way in which shapes are found without looking at all of them.
type facetKind int

const (
	byNamespace facetKind = iota
	byLabel
	byOwner
	facetKinds
)

// facets is the index of one kind over shapes. It is made when it is asked for the first time in a store of many shapes, and
// kept up to date from then on; most stores have few shapes and never need it.
type facets struct {
	seed maphash.Seed
	sets trie[*facet]
}

// facet is the set of shapes with one namespace, label or owner.
type facet struct {
	key, value string
	hash       uint64
	shapes     trie[*shape]
}

func (f *facet) hash64() uint64        { return f.hash }
func (f *facet) sameKey(o *facet) bool { return f.value == o.value && f.key == o.key }

// manyShapes is how many shapes are not looked through any more.
const manyShapes = 512

func (x *facets) facet(key, value string) *facet {
	return &facet{key: key, value: value, hash: maphash.String(x.seed, key)*31 ^ maphash.String(x.seed, value)}
}

// of yields where a shape is found.
func (x *facets) of(kind facetKind, sh *shape) iter.Seq[*facet] {
	return func(yield func(*facet) bool) {
		switch kind {
		case byNamespace:
			yield(x.facet("", sh.ns))
		case byLabel:
			for _, l := range sh.labels {
				if !yield(x.facet(l.Key, l.Value)) {
					return
				}
			}
		case byOwner:
			for i := range sh.owners {
				if !yield(x.facet("", string(sh.owners[i].UID))) {
					return
				}
			}
		}
	}
}

// with returns the facets with a shape that came into use, or without one that went out of it.
func (x *facets) with(e *edit, kind facetKind, sh *shape, used bool) *facets {
	next := *x
	for f := range x.of(kind, sh) {
		had, ok := next.sets.find(f)
		if ok {
			f.shapes = had.shapes
		}
		if used {
			f.shapes, _, _ = f.shapes.set(e, sh)
		} else {
			f.shapes, _, _ = f.shapes.delete(e, sh)
		}
		if f.shapes.len == 0 {
			next.sets, _, _ = next.sets.delete(e, f)
		} else {
			next.sets, _, _ = next.sets.set(e, f)
		}
	}
	return &next
}

// having yields the groups of one facet; ok is false while there are no facets of that kind.
func (s *state) having(kind facetKind, key, value string) (_ iter.Seq[*group], ok bool) {
	x := s.facets[kind]
	if x == nil {
		return nil, false
	}
	return func(yield func(*group) bool) {
		f, ok := x.sets.find(x.facet(key, value))
		if !ok {
			return
		}
		for sh := range f.shapes.all() {
			if g, ok := s.groups.find(&group{shape: sh}); ok && !yield(g) {
				return
			}
		}
	}, true
}

// needFacets makes the facets of a kind if there are many shapes and none yet.
func (s *Store) needFacets(st *state, kind facetKind) {
	if st.facets[kind] != nil || st.groups.len <= manyShapes {
		return
	}
	for range 3 {
		cur := s.root.Load()
		base := s.makeFacets(kind, cur.base)
		view := base
		if cur.view != cur.base {
			view = s.makeFacets(kind, cur.view)
		}
		if s.setFacets(kind, cur, base, view) {
			return
		}
	}
	// Shapes come and go all the time: the next one who asks tries again, and this one looks through all of them.
}

func (s *Store) makeFacets(kind facetKind, st *state) *facets {
	e, x := &edit{}, &facets{seed: s.intern.seed}
	for g := range st.groups.all() {
		x = x.with(e, kind, g.shape, true)
	}
	return x
}

// setFacets publishes facets that were made of seen, unless shapes have come or gone since.
func (s *Store) setFacets(kind facetKind, seen *root, base, view *facets) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur := s.root.Load()
	if cur.base.facets[kind] != nil {
		return true
	}
	if cur.base.groups.root != seen.base.groups.root || cur.view.groups.root != seen.view.groups.root {
		return false
	}
	next := root{base: cur.base.copy()}
	next.base.facets[kind] = base
	next.view = next.base
	if cur.view != cur.base {
		next.view = cur.view.copy()
		next.view.facets[kind] = view
	}
	s.publish(next, nil)
	return true
}
