package group

import (
	"slices"

	"github.com/fairlead-io/fairlead/shard"
)

// change is what one member writes into the record, in one compare-and-swap. The zero value changes nothing, but that
// slots that have become free go to their targets.
type change struct {
	join    *member
	leave   string // the ID of who lets all its slots go
	drop    []string
	release shard.Set // slots of from of which nothing runs any more
	from    string
	found   string // slots may be held from now on, in the object of that uid
	abandon bool   // no slot may be held any more
}

// apply returns the record after a change, and whether it is another one. Slots that nobody holds go to their targets
// if the record is founded.
func (c change) apply(r *record) (*record, bool) {
	n := r.clone()
	for _, id := range c.drop {
		n.drop(id)
	}
	if c.join != nil && n.member(c.join.ID) == nil {
		n.members = append(n.members, *c.join)
	}
	if m := n.member(c.leave); m != nil {
		m.Leaving = true
	}
	for i := range c.release.Slots() {
		if n.slots[i].holder == c.from {
			n.slots[i].holder = ""
		}
	}
	if m := n.member(c.leave); m != nil && n.heldBy(m.ID).IsEmpty() {
		n.drop(m.ID)
	}
	if c.found != "" {
		n.founded = c.found
	}
	if c.abandon || len(n.members) == 0 {
		n.founded = ""
	}
	for i, next := range assign(n.members, n.slots) {
		s := &n.slots[i]
		s.next = next
		if s.holder == "" && n.founded != "" {
			s.holder = next
		}
	}
	if n.founded == r.founded && slices.Equal(n.members, r.members) && slices.Equal(n.slots, r.slots) {
		return r, false
	}
	n.rev++
	return n, true
}

// drop takes out a member that holds nothing any more, since it is dead or has lost all.
func (r *record) drop(id string) {
	r.members = slices.DeleteFunc(r.members, func(m member) bool { return m.ID == id })
	for i := range r.slots {
		s := &r.slots[i]
		if s.holder == id {
			s.holder = ""
		}
		if s.next == id {
			s.next = ""
		}
	}
}

// gives says whether a change has slots held by others than those to whom their holder lets them go: slots that were
// free, or of members that are gone.
func (c change) gives(before, after *record) bool {
	for i, s := range after.slots {
		was := before.slots[i].holder
		if s.holder != "" && s.holder != was && (was != c.from || !c.release.Holds(i)) {
			return true
		}
	}
	return false
}

// free says that nobody holds a slot.
func (r *record) free() bool {
	return !slices.ContainsFunc(r.slots, func(s slot) bool { return s.holder != "" })
}
