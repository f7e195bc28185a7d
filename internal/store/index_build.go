package store

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/fairlead-io/fairlead/internal/trie"
)

// addAtOnce is how many objects are added to a new index under one lock. It bounds how long a writer waits.
const addAtOnce = 256

// indexer adds and removes indexes while a store runs. The indexes are part of the published states, and their
// definitions belong to the publisher. The indexer has the lists of their buckets.
type indexer struct {
	pub     *publisher
	overlay *overlay
	seed    maphash.Seed
	opt     *Options
	lists   bucketLists
}

// AddIndex adds an index over all objects. It can be called at any time. It fails if an index of that name exists or is
// being added. fn is called for each version of each object, outside of any lock.
//
// AddIndex returns when the index is complete; reads do not see it earlier. Other writers continue meanwhile. They add
// the objects that they change to the index, so each object is visited once. AddIndex fails if the index is removed
// before it is complete.
func (x *indexer) AddIndex(name string, fn IndexFunc) error {
	if err := x.addIndex(name, fn); err != nil {
		return fmt.Errorf("cannot add index %q to the store of %s: %w", name, x.opt.resource(), err)
	}
	return nil
}

func (x *indexer) addIndex(name string, fn IndexFunc) error {
	if fn == nil {
		return errNoIndexFunc
	}
	def := &indexDef{name: name, fn: fn, seed: x.seed, lists: &x.lists}
	b := indexBuild{x, def}
	overlaid, err := b.begin()
	if err != nil {
		return err
	}
	some, there := make([]staged, 0, addAtOnce), true
	for _, r := range overlaid {
		some = append(some, stage(r, []*indexDef{def}))
		if len(some) == addAtOnce {
			there = b.add(some)
			some = some[:0]
		}
	}
	there = b.add(some) && there
	for at, more := (trie.Place{}), true; more && there; {
		var records []*Record
		// of the newest state, so that no old state is kept in memory
		records, at, more = x.pub.current().base.objects.After(at, addAtOnce)
		some = some[:0]
		for _, r := range records {
			some = append(some, stage(r, []*indexDef{def}))
		}
		there = b.add(some)
	}
	if !there || !b.end() {
		return errIndexRemoved
	}
	return nil
}

// RemoveIndex removes an index that was added or is being added. Its name is free then. Built-in indexes and those of
// earlier snapshots stay. The index function is not called for later changes.
func (x *indexer) RemoveIndex(name string) {
	x.pub.lock()
	defer x.pub.unlock()
	at := slices.IndexFunc(x.pub.indexes(), func(d *indexDef) bool { return d.name == name })
	if at < 0 {
		return
	}
	def := x.pub.indexes()[at]
	x.pub.setIndexes(slices.Delete(slices.Clone(x.pub.indexes()), at, at+1))
	x.pub.editBoth(func(st *state) {
		st.indexes = slices.DeleteFunc(st.indexes, func(i *index) bool { return i.def == def })
	})
	x.overlay.removeIndex(def)
}

var (
	errIndexExists  = errors.New("the name is in use")
	errIndexRemoved = errors.New("it was removed concurrently")
	errNoIndexFunc  = errors.New("the function is nil")
)

// indexBuild adds one index while the store runs.
type indexBuild struct {
	*indexer
	def *indexDef
}

// begin makes writers maintain the index from now on. It returns the own writes in the overlay, which no writer adds to
// it.
func (b indexBuild) begin() (overlaid []*Record, err error) {
	x, def := b.indexer, b.def
	x.pub.lock()
	defer x.pub.unlock()
	cur := x.pub.current()
	if _, exists := cur.merged.byIndex(def.name, ""); exists ||
		slices.ContainsFunc(x.pub.indexes(), func(d *indexDef) bool { return d.name == def.name }) {
		return nil, errIndexExists
	}
	x.pub.setIndexes(append(slices.Clone(x.pub.indexes()), def))
	x.pub.editBoth(func(st *state) {
		st.indexes = append(st.indexes, &index{def: def, building: true})
	})
	return x.overlay.records(), nil
}

// add adds objects to a new index. It skips those that were replaced meanwhile, since their writer has added the new
// version. It reports false if the index was removed.
func (b indexBuild) add(some []staged) (there bool) {
	x, def := b.indexer, b.def
	x.pub.lock()
	defer x.pub.unlock()
	if !slices.Contains(x.pub.indexes(), def) {
		return false
	}
	x.pub.editBoth(func(st *state) {
		e := &trie.Edit{}
		idx := st.index(def)
		for _, one := range some {
			if now, ok := st.objects.Find(one.rec); ok && now == one.rec {
				idx.set(e, now.id, one.valuesOf(def))
			}
		}
	})
	for _, one := range some {
		x.overlay.addIndex(one, def)
	}
	return true
}

// end makes the index visible, unless it was removed.
func (b indexBuild) end() (there bool) {
	b.pub.lock()
	defer b.pub.unlock()
	if there = slices.Contains(b.pub.indexes(), b.def); there {
		b.pub.editBoth(func(st *state) { st.index(b.def).building = false })
	}
	return there
}

// needFacets makes the facets of a kind if there are many shapes and no facets yet. Writers maintain them from the
// beginning, so this ends however many shapes come and go. Other readers scan all shapes meanwhile.
func (x *indexer) needFacets(st *state, kind facetKind) {
	if st.facets[kind] != nil || st.groups.Len() <= manyShapes {
		return
	}
	b := facetBuild{x, kind}
	some, begun := b.begin()
	if !begun {
		return
	}
	b.add(some, false)
	for at, more := (trie.Place{}), true; more; {
		var groups []*group
		groups, at, more = x.pub.current().base.groups.After(at, addAtOnce)
		some = some[:0]
		for _, g := range groups {
			some = append(some, g.shape)
		}
		b.add(some, !more)
	}
}

// facetBuild makes the facets of one kind while the store runs.
type facetBuild struct {
	*indexer
	kind facetKind
}

// begin makes writers maintain facets from now on, unless they do already. It returns the shapes of own writes in the
// overlay.
func (b facetBuild) begin() (some []*shape, begun bool) {
	x, kind := b.indexer, b.kind
	x.pub.lock()
	defer x.pub.unlock()
	if x.pub.current().base.facets[kind] != nil {
		return nil, false
	}
	x.pub.editBoth(func(st *state) { st.facets[kind] = &facets{seed: x.seed, building: true} })
	for _, r := range x.overlay.records() {
		some = append(some, r.shape)
	}
	return some, true
}

// add adds the shapes that are still in use. A writer has removed the others.
func (b facetBuild) add(some []*shape, last bool) {
	x, kind := b.indexer, b.kind
	x.pub.lock()
	defer x.pub.unlock()
	x.pub.editBoth(func(st *state) {
		e := &trie.Edit{}
		for _, sh := range some {
			if _, used := st.groups.Find(&group{shape: sh}); used {
				st.facets[kind] = st.facets[kind].updated(e, kind, sh, true)
			}
		}
		if last {
			done := *st.facets[kind]
			done.building = false
			st.facets[kind] = &done
		}
	})
}
