package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/trie"
)

// addAtOnce is how many objects are added to a new index under one lock. It bounds how long a writer waits.
const addAtOnce = 256

// AddIndex adds an index over all objects. It can be called at any time. It fails if an index of that name exists or is
// being added. fn is called for each version of each object, outside of any lock.
//
// AddIndex returns when the index is complete; reads do not see it earlier. Other writers continue meanwhile. They add
// the objects that they change to the index, so each object is visited once. AddIndex fails if the index is removed
// before it is complete.
func (s *Store) AddIndex(name string, fn IndexFunc) error {
	if err := s.addIndex(name, fn); err != nil {
		return fmt.Errorf("cannot add index %q to the store of %s: %w", name, s.opt.Resource.GroupResource(), err)
	}
	return nil
}

func (s *Store) addIndex(name string, fn IndexFunc) error {
	if fn == nil {
		return errNoIndexFunc
	}
	def := &indexDef{name: name, fn: fn, seed: s.intern.seed}
	b := indexBuild{s, def}
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
		records, at, more = s.root.Load().base.objects.After(at, addAtOnce)
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
func (s *Store) RemoveIndex(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.defs, func(d *indexDef) bool { return d.name == name })
	if at < 0 {
		return
	}
	def := s.defs[at]
	s.defs = slices.Delete(slices.Clone(s.defs), at, at+1)
	s.editBoth(func(st *state) {
		st.indexes = slices.DeleteFunc(st.indexes, func(x *index) bool { return x.def == def })
	})
	for _, ent := range s.overlay.entries {
		ent.st = ent.st.without(def)
	}
}

var (
	errIndexExists  = errors.New("the name is in use")
	errIndexRemoved = errors.New("it was removed concurrently")
	errNoIndexFunc  = errors.New("the function is nil")
)

// indexBuild adds one index while the store runs.
type indexBuild struct {
	s   *Store
	def *indexDef
}

// begin makes writers maintain the index from now on. It returns the own writes in the overlay, which no writer adds to
// it.
func (b indexBuild) begin() (overlaid []*Record, err error) {
	s, def := b.s, b.def
	s.mu.Lock()
	defer s.mu.Unlock()
	cur := s.root.Load()
	if _, exists := cur.merged.byIndex(def.name, ""); exists ||
		slices.ContainsFunc(s.defs, func(d *indexDef) bool { return d.name == def.name }) {
		return nil, errIndexExists
	}
	s.defs = append(slices.Clone(s.defs), def)
	s.editBoth(func(st *state) {
		st.indexes = append(st.indexes, &index{def: def, building: true})
	})
	for _, ent := range s.overlay.entries {
		if ent.st.rec != nil {
			overlaid = append(overlaid, ent.st.rec)
		}
	}
	return overlaid, nil
}

// add adds objects to a new index. It skips those that were replaced meanwhile, since their writer has added the new
// version. It reports false if the index was removed.
func (b indexBuild) add(some []staged) (there bool) {
	s, def := b.s, b.def
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.defs, def) {
		return false
	}
	s.editBoth(func(st *state) {
		e := &trie.Edit{}
		x := st.index(def)
		for _, one := range some {
			if now, ok := st.objects.Find(one.rec); ok && now == one.rec {
				x.set(e, now.id, one.valuesOf(def))
			}
		}
	})
	for _, one := range some {
		// The record was laid over before the index was added. The next merged state must have it in the index, too.
		if ent := s.overlay.entries[one.rec.Key()]; ent != nil && ent.st.rec == one.rec &&
			!slices.Contains(ent.st.defs, def) {
			ent.st = staged{
				rec: one.rec, defs: append(slices.Clone(ent.st.defs), def),
				values: append(slices.Clone(ent.st.values), one.valuesOf(def)),
			}
		}
	}
	return true
}

// end makes the index visible, unless it was removed.
func (b indexBuild) end() (there bool) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if there = slices.Contains(b.s.defs, b.def); there {
		b.s.editBoth(func(st *state) { st.index(b.def).building = false })
	}
	return there
}

// needFacets makes the facets of a kind if there are many shapes and no facets yet. Writers maintain them from the
// beginning, so this ends however many shapes come and go. Other readers scan all shapes meanwhile.
func (s *Store) needFacets(st *state, kind facetKind) {
	if st.facets[kind] != nil || st.groups.Len() <= manyShapes {
		return
	}
	b := facetBuild{s, kind}
	some, begun := b.begin()
	if !begun {
		return
	}
	b.add(some, false)
	for at, more := (trie.Place{}), true; more; {
		var groups []*group
		groups, at, more = s.root.Load().base.groups.After(at, addAtOnce)
		some = some[:0]
		for _, g := range groups {
			some = append(some, g.shape)
		}
		b.add(some, !more)
	}
}

// facetBuild makes the facets of one kind while the store runs.
type facetBuild struct {
	s    *Store
	kind facetKind
}

// begin makes writers maintain facets from now on, unless they do already. It returns the shapes of own writes in the
// overlay.
func (b facetBuild) begin() (some []*shape, begun bool) {
	s, kind := b.s, b.kind
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

// add adds the shapes that are still in use. A writer has removed the others.
func (b facetBuild) add(some []*shape, last bool) {
	s, kind := b.s, b.kind
	s.mu.Lock()
	defer s.mu.Unlock()
	s.editBoth(func(st *state) {
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
