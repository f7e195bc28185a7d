package store

import (
	"hash/maphash"
	"iter"

	"github.com/fairlead-io/fairlead/internal/trie"
)

// facetKind is a criterion by which shapes are indexed.
type facetKind int

const (
	byNamespace facetKind = iota
	byLabel
	byOwner
	facetKinds
)

// facets is an index over shapes by one criterion. A store of many shapes makes it on first use and then keeps it up to
// date. Most stores have few shapes and never need it.
type facets struct {
	seed     maphash.Seed
	sets     trie.Map[*facet, facetKeys]
	building bool // it lacks shapes; reads do not use it yet
}

// facet is the set of shapes with one namespace, label or owner.
type facet struct {
	key, value string
	hash       uint64
	shapes     trie.Map[*shape, shapeKeys]
}

// facetKeys compares facets by key and value.
type facetKeys struct{}

func (facetKeys) Hash(f *facet) uint64  { return f.hash }
func (facetKeys) Same(a, b *facet) bool { return a.value == b.value && a.key == b.key }

// manyShapes is the number of shapes above which reads use facets instead of scanning all shapes.
const manyShapes = 512

func (x *facets) facet(key, value string) *facet {
	return &facet{key: key, value: value, hash: maphash.String(x.seed, key)*31 ^ maphash.String(x.seed, value)}
}

// of yields the facets that a shape belongs to.
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

// updated returns the facets with a shape that has come into use, or without one that is no longer in use.
func (x *facets) updated(e *trie.Edit, kind facetKind, sh *shape, used bool) *facets {
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
