package store

import "github.com/fairlead-io/fairlead/shard"

// CountSlots returns the number of objects in those of the stores that hold only some slots, by namespace, and these
// slots. The map is nil while the number is not known: objects of a slot are not listed yet, or the stores differ in
// their slots. A kind that the server refuses to list counts as having no objects.
func CountSlots(stores ...*Store) (byNamespace map[string]int, of shard.Set) {
	some := false
	byNamespace = map[string]int{}
	for _, s := range stores {
		if s == nil || s.opt.Shard == "" {
			continue
		}
		base, held, ok := s.intake.counted()
		switch {
		case !ok, some && held.Minus(of).Len()+of.Minus(held).Len() > 0:
			return nil, shard.Set{}
		case !some, held.Layout().Version() > of.Layout().Version():
			some, of = true, held
		}
		for g := range base.groups.All() {
			byNamespace[g.shape.ns] += g.ids.Len()
		}
	}
	if !some {
		return nil, shard.Set{}
	}
	return byNamespace, of
}

// counted returns the base if it has all objects of the held slots.
func (in *intake) counted() (base *state, held shard.Set, ok bool) {
	in.pub.lock()
	defer in.pub.unlock()
	for _, cov := range in.coverages {
		switch {
		case cov.refused():
			continue
		case cov.share == nil || !cov.isComplete() || !cov.whole():
			return nil, held, false
		}
		held, ok = cov.share.held, true
	}
	return in.pub.current().base, held, ok
}
