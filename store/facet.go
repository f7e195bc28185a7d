package store

import (
	"hash/maphash"
	"iter"

	"github.com/fairlead-io/fairlead/internal/trie"
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
	seed     maphash.Seed
	sets     trie.Map[*facet, facetKeys]
	building bool // it lacks shapes
}

// facet is the set of shapes with one namespace, label or owner.
type facet struct {
	key, value string
	hash       uint64
	shapes     trie.Map[*shape, shapeKeys]
}

// facetKeys has facets found by what they stand for.
type facetKeys struct{}

func (facetKeys) Hash(f *facet) uint64  { return f.hash }
func (facetKeys) Same(a, b *facet) bool { return a.value == b.value && a.key == b.key }

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
func (x *facets) with(e *trie.Edit, kind facetKind, sh *shape, used bool) *facets {
	next := *x
	for f := range x.of(kind, sh) {
		had, ok := next.sets.Find(f)
		if ok {
			f.shapes = had.shapes
		}
		if used {
			f.shapes, _, _ = f.shapes.Set(e, sh)
		} else {
			f.shapes, _, _ = f.shapes.Delete(e, sh)
		}
		if f.shapes.Len() == 0 {
			next.sets, _, _ = next.sets.Delete(e, f)
		} else {
			next.sets, _, _ = next.sets.Set(e, f)
		}
	}
	return &next
}

// having yields the groups of one facet; ok is false while there are no facets of that kind.
func (s *state) having(kind facetKind, key, value string) (_ iter.Seq[*group], ok bool) {
	x := s.facets[kind]
	if x == nil || x.building {
		return nil, false
	}
	return func(yield func(*group) bool) {
		f, ok := x.sets.Find(x.facet(key, value))
		if !ok {
			return
		}
		for sh := range f.shapes.All() {
			if g, ok := s.groups.Find(&group{shape: sh}); ok && !yield(g) {
				return
			}
		}
	}, true
}

// needFacets makes the facets of a kind if there are many shapes and none yet. Writers keep them from the beginning, so that it ends however
// many shapes come and go. Whoever asks meanwhile looks through all of them.
func (s *Store) needFacets(st *state, kind facetKind) {
	if st.facets[kind] != nil || st.groups.Len() <= manyShapes {
		return
	}
	some, begun := s.beginFacets(kind)
	if !begun {
		return
	}
	s.addFacets(kind, some, false)
	for at, more := (trie.Place{}), true; more; {
		var groups []*group
		groups, at, more = s.root.Load().base.groups.After(at, addAtOnce)
		some = some[:0]
		for _, g := range groups {
			some = append(some, g.shape)
		}
		s.addFacets(kind, some, !more)
	}
}

// beginFacets has writers keep facets from now on, unless they do already. It returns the shapes of own writes that are laid over.
func (s *Store) beginFacets(kind facetKind) (some []*shape, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root.Load().base.facets[kind] != nil {
		return nil, false
	}
	s.editBoth(func(st *state) { st.facets[kind] = &facets{seed: s.intern.seed, building: true} })
	for _, ent := range s.overlay.entries {
		if ent.st.rec != nil {
			some = append(some, ent.st.rec.shape)
		}
	}
	return some, true
}

// addFacets adds shapes that are in use still; who has stopped using one meanwhile has taken it out.
func (s *Store) addFacets(kind facetKind, some []*shape, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.editBoth(func(st *state) {
		e := &trie.Edit{}
		for _, sh := range some {
			if _, used := st.groups.Find(&group{shape: sh}); used {
				st.facets[kind] = st.facets[kind].with(e, kind, sh, true)
			}
		}
		if last {
			done := *st.facets[kind]
			done.building = false
			st.facets[kind] = &done
		}
	})
}
