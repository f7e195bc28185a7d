package group

import (
	"slices"

	"github.com/fairlead-io/fairlead/shard"
)

// change is one compare-and-swap of the record by one member. The zero value only assigns free slots to their targets.
type change struct {
	join    *member
	leave   string // ID of the member that leaves
	drop    []string
	release shard.Set // slots of from without running work
	from    string
	claim   shard.Set // slots that from holds since a former record; a record that is not founded adopts them
	found   string    // uid of the group Lease; free slots may be given from now on
	abandon bool      // no slot may be held any more
	// goal has the boundaries that the slots are to have; the zero value changes nothing. stay gives up the goal of the
	// record, and keeps the present boundaries.
	goal shard.Layout
	stay bool
	// give is a slot that from gives away, as it is not ready for it. try lets from take one slot although it counts as
	// not ready. recovered lets it count like the others again.
	give           *gift
	try, recovered bool
}

// apply returns the record after a change, and whether it differs. If the record is founded, free slots go to their
// targets.
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
	if r.founded == "" && !c.abandon && n.member(c.from) != nil {
		n.claim(c.from, c.claim)
	}
	if c.found != "" {
		n.founded = c.found
	}
	if c.abandon {
		n.dropHolders()
	}
	if c.abandon || len(n.members) == 0 {
		n.founded = ""
	}
	if self := n.member(c.from); self != nil {
		switch {
		case c.give != nil:
			n.give(c.from, *c.give)
		case c.try:
			n.try(c.from)
		case c.recovered:
			self.Coverage = n.newest()
		}
	}
	n.normalize()
	if c.goal != (shard.Layout{}) {
		n.goal = c.goal
	}
	if c.stay || n.founded == "" {
		n.goal = shard.Layout{}
	}
	if len(n.members) == 0 { // programs of former releases may be next
		n.layout = equalRanges(n.layout)
	}
	between := n.moveBoundaries()
	for range n.slots { // a slot without a target counts for its holder in the next round
		if !n.retarget(between) {
			break
		}
	}
	for i := range n.slots {
		if s := &n.slots[i]; s.holder == "" && n.founded != "" {
			s.holder = s.next
		}
	}
	if n.founded == r.founded && n.layout == r.layout && n.goal == r.goal && slices.Equal(n.members, r.members) &&
		slices.Equal(n.slots, r.slots) {
		return r, false
	}
	n.rev++
	return n, true
}

// retarget gives each slot its target, except the slots of the next step of the boundaries, and reports whether a
// target has changed.
func (r *record) retarget(between shard.Set) (changed bool) {
	for i, next := range assign(r.members, r.slots) {
		if between.Holds(i) {
			next = ""
		}
		changed = changed || r.slots[i].next != next
		r.slots[i].next = next
	}
	return changed
}

// gives reports whether a change assigns free slots, or slots of removed members. Slots that their holder releases in
// the change do not count.
func (c change) gives(before, after *record) bool {
	for i, s := range after.slots {
		was := before.slots[i].holder
		if s.holder != "" && s.holder != was && (was != c.from || !c.release.Holds(i)) {
			return true
		}
	}
	return false
}
