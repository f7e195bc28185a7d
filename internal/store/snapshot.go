package store

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// reader reads the published state, own writes included. It has no state and takes no lock.
type reader struct {
	pub     *publisher
	intern  *interner
	indexer *indexer // makes facets on demand
}

// Get returns the object of a key, own writes included.
func (r *reader) Get(k Key) (*Record, bool) {
	return r.pub.current().merged.get(r.intern.hashOf(k), k)
}

// Len returns the number of objects, own writes included.
func (r *reader) Len() int { return r.pub.current().merged.objects.Len() }

// Snapshot returns the present version.
func (r *reader) Snapshot() Snapshot { return Snapshot{store: r, state: r.pub.current().merged} }

// Snapshot is one version of the store, own writes included. It never changes, blocks no writer and costs nothing to
// take. It keeps its records in memory as long as it is referenced. It is safe for concurrent use.
type Snapshot struct {
	store *reader
	state *state
}

// Len returns the number of objects.
func (v Snapshot) Len() int { return v.state.objects.Len() }

// Get returns the object of a key.
func (v Snapshot) Get(k Key) (*Record, bool) {
	return v.state.get(v.store.intern.hashOf(k), k)
}

// All yields every object, in no particular order.
func (v Snapshot) All() iter.Seq[*Record] { return v.state.all() }

// InNamespace yields the objects of a namespace, all for "".
func (v Snapshot) InNamespace(ns string) iter.Seq[*Record] {
	if ns != "" {
		v.store.indexer.needFacets(v.state, byNamespace)
	}
	return v.state.inScope(ns)
}

// Index yields the objects with a value in an index: IndexNamespace, IndexLabel, IndexOwner, or one of AddIndex. An
// index that does not exist yields no objects; see HasIndex.
func (v Snapshot) Index(name, value string) iter.Seq[*Record] {
	switch name {
	case IndexNamespace:
		v.store.indexer.needFacets(v.state, byNamespace)
	case IndexLabel:
		v.store.indexer.needFacets(v.state, byLabel)
	case IndexOwner:
		v.store.indexer.needFacets(v.state, byOwner)
	}
	for _, x := range v.state.indexes {
		if x.def.name == name && !x.building {
			return v.listed(x, value)
		}
	}
	seq, _ := v.state.byIndex(name, value)
	return seq
}

// HasIndex reports whether there is an index of that name.
func (v Snapshot) HasIndex(name string) bool {
	_, ok := v.state.byIndex(name, "")
	return ok
}

// IndexValues yields the distinct values of an index, in no particular order. The index is IndexNamespace, IndexLabel
// (with values "key=value"), IndexOwner, or one of AddIndex. An index that does not exist has none.
func (v Snapshot) IndexValues(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, x := range v.state.indexes {
			if x.def.name != name || x.building {
				continue
			}
			for b := range x.buckets.All() {
				if !yield(b.value) {
					return
				}
			}
			return
		}
		told := map[string]bool{}
		for g := range v.state.groups.All() {
			for _, value := range g.shape.indexValues(name) {
				if !told[value] && !yield(value) {
					return
				}
				told[value] = true
			}
		}
	}
}

// Indexes returns the names of all indexes, sorted.
func (v Snapshot) Indexes() []string {
	names := []string{IndexNamespace, IndexLabel, IndexOwner}
	for _, x := range v.state.indexes {
		names = append(names, x.def.name)
	}
	slices.Sort(names)
	return names
}

// Select yields the objects whose labels match; nil matches all.
func (v Snapshot) Select(sel labels.Selector) iter.Seq[*Record] {
	if sel != nil {
		if _, _, ok := oneValue(sel); ok {
			v.store.indexer.needFacets(v.state, byLabel)
		}
	}
	return v.state.selected(sel)
}

// IndexErrors returns, by key, why objects are missing from an index.
func (v Snapshot) IndexErrors(name string) map[Key]error {
	out := map[Key]error{}
	for _, x := range v.state.indexes {
		if x.def.name != name || x.building {
			continue
		}
		for e := range x.entries.All() {
			if e.err != nil {
				out[e.id.key()] = e.err
			}
		}
	}
	return out
}
