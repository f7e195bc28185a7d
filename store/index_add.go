package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/trie"
)

// addAtOnce is how many objects are put into a new index at once: what a writer may have to wait for.
const addAtOnce = 256

// AddIndex adds an index over all objects, at any time. Adding one of a name that exists, or is being added, fails. The function is called
// for each version of each object, outside of any lock.
//
// It returns when the index is complete, which reads do not see before. Other writers go on meanwhile, and how much they change makes no
// difference: from the beginning whoever changes an object puts it into the index, so that each object is visited once.
func (s *Store) AddIndex(name string, fn IndexFunc) error {
	def := &indexDef{name: name, fn: fn, seed: s.intern.seed}
	overlaid, err := s.beginIndex(def)
	if err != nil {
		return fmt.Errorf("cannot add index %q to the store of %s: %w", name, s.opt.Resource.GroupResource(), err)
	}
	some := make([]staged, 0, addAtOnce)
	for _, r := range overlaid {
		some = append(some, stage(r, []*indexDef{def}))
		if len(some) == addAtOnce {
			s.addToIndex(def, some)
			some = some[:0]
		}
	}
	s.addToIndex(def, some)
	for at, more := (trie.Place{}), true; more; {
		var records []*Record
		records, at, more = s.root.Load().base.objects.After(at, addAtOnce) // of the newest state: no old one is held meanwhile
		some = some[:0]
		for _, r := range records {
			some = append(some, stage(r, []*indexDef{def}))
		}
		s.addToIndex(def, some)
	}
	s.endIndex(def)
	return nil
}

var errIndexExists = errors.New("there is one of that name")

// beginIndex has writers keep the index from now on. It returns the own writes that are laid over, which nobody else puts into it.
func (s *Store) beginIndex(def *indexDef) (overlaid []*Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur := s.root.Load()
	if _, exists := cur.merged.byIndex(def.name, ""); exists || slices.ContainsFunc(s.defs, func(d *indexDef) bool { return d.name == def.name }) {
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

// addToIndex puts objects into a new index, but for those that have been replaced meanwhile: who did that has put them there.
func (s *Store) addToIndex(def *indexDef, some []staged) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
		// It has been laid over before the index was added: the next merged state is to have it in the index, too.
		if ent := s.overlay.entries[one.rec.Key()]; ent != nil && ent.st.rec == one.rec && !slices.Contains(ent.st.defs, def) {
			ent.st = staged{rec: one.rec, defs: append(slices.Clone(ent.st.defs), def), values: append(slices.Clone(ent.st.values), one.valuesOf(def))}
		}
	}
}

// endIndex makes an index visible.
func (s *Store) endIndex(def *indexDef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.editBoth(func(st *state) { st.index(def).building = false })
}

// editBoth publishes copies of base and merged state that were edited, or one for both while they are the same; the caller holds s.mu.
func (s *Store) editBoth(edit func(*state)) {
	cur := s.root.Load()
	next := root{base: cur.base.copy()}
	edit(next.base)
	next.merged = next.base
	if cur.merged != cur.base {
		next.merged = cur.merged.copy()
		edit(next.merged)
	}
	s.publish(next, nil)
}

// index returns the index of a definition.
func (s *state) index(def *indexDef) *index {
	i := slices.IndexFunc(s.indexes, func(x *index) bool { return x.def == def })
	return s.indexes[i]
}
