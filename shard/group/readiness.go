package group

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/shard"
)

const (
	// readyTimeout is how long a member may fail to become ready for a slot.
	readyTimeout = time.Minute
	// retryInterval is the time after which a member that has given slots away takes one again.
	retryInterval = 5 * time.Minute
)

// readiness decides which slots this member gives away because it is not ready for them, and when it takes slots again.
// Only the goroutine of Run uses it.
//
// A member that has given a slot away counts as one of an older coverage: it gains no slots, and keeps at most its
// share. After retryInterval it takes one slot if it has none. Once it is ready for all slots that it holds, it counts
// like the others again.
type readiness struct {
	opt      *Options
	view     *view
	clock    leasing.Clock
	own      coverage
	unready  unready
	announce func(Change)

	since    map[int]leasing.Stamp // by slot that is held and not ready: since when
	gave     leasing.Stamp         // when this member last gave a slot away; zero: never
	reported bool                  // NotReady was announced for the slots of since
}

// gift is a slot that its holder gives to another member.
type gift struct {
	slot int
	to   string // ID of the member
}

// plan returns what changes in a record: a slot that this member gives away, that it takes one slot to try whether it
// is ready for it, or that it counts like the others again. held are the slots that this member holds.
func (d *readiness) plan(r *record, id string, held shard.Set) (give *gift, try, recovered bool) {
	now := d.clock.Stamp()
	late, some := d.late(held, now.Time)
	self := r.member(id)
	if self == nil || self.Leaving || r.founded == "" || r.goal != (shard.Layout{}) || r.moves(id) {
		return nil, false, false
	}
	newest := d.newest(r, id)
	switch aside := self.Coverage < r.newest(); {
	case len(newest) == 0: // it has an older coverage, or is the only member
		return nil, false, false
	case len(late) > 0:
		if give = d.gift(r, newest, late); give != nil {
			d.gave = now
		}
		return give, false, false
	case !aside || some:
		return nil, false, false
	case d.gave.IsZero(): // since a former incarnation of the record
		d.gave = now
		return nil, false, false
	case d.gave.AtLeast(now.Time) < retryInterval:
		return nil, false, false
	}
	return nil, r.heldBy(id).IsEmpty(), !held.IsEmpty()
}

// late returns the held slots for which this member has failed to become ready for readyTimeout, the first one first.
// some reports whether it is not ready for some slot.
func (d *readiness) late(held shard.Set, now time.Time) (late []int, some bool) {
	lacking, reason := d.unready.of(held)
	for slot := range d.since {
		if !lacking.Holds(slot) || reason == "" {
			delete(d.since, slot)
		}
	}
	if reason == "" { // it is ready, or makes progress
		d.reported = false
		return nil, !lacking.IsEmpty()
	}
	slots := lacking.Layout().Set()
	for slot := range lacking.Slots() {
		since, ok := d.since[slot]
		if !ok {
			since = d.clock.Stamp()
			d.since[slot] = since
		}
		if since.AtLeast(now) >= readyTimeout {
			late = append(late, slot)
			slots = slots.Union(lacking.Layout().Set(slot))
		}
	}
	if len(late) > 0 && !d.reported {
		d.announce(Change{Kind: NotReady, Slots: slots, Err: errors.New(reason)})
	}
	d.reported = len(late) > 0
	return late, !lacking.IsEmpty()
}

// newest returns the other members to which slots go first, if they have the same coverage as this one. It returns none
// if a member states nothing: it may be of a former release, which does not read generations.
func (d *readiness) newest(r *record, id string) (others []member) {
	newest := r.newest()
	for _, m := range r.members {
		seen, _ := d.view.get(leaseName(d.opt.Name, m.ID))
		stated := coverageOf(seen.Lease())
		switch {
		case stated.Program == "":
			return nil
		case m.ID != id && m.Coverage == newest && !m.Leaving && slices.Equal(stated.Kinds, d.own.Kinds):
			others = append(others, m)
		}
	}
	return others
}

// gift returns the slot to give away, and the member with the fewest slots of those that are ready for some slot; nil
// if no other member is ready.
func (d *readiness) gift(r *record, others []member, late []int) *gift {
	g := &gift{slot: late[0]}
	least := 0
	for _, m := range others {
		seen, _ := d.view.get(leaseName(d.opt.Name, m.ID))
		if n := r.targetsOf(m.ID).Len(); readySlotsOf(seen.Lease()).Ready > 0 && (g.to == "" || n < least) {
			g.to, least = m.ID, n
		}
	}
	if g.to == "" {
		return nil
	}
	return g
}

// readySlots says in the Lease of a member for which of its slots it is ready.
type readySlots struct {
	Ready   int    `json:"ready"`             // number of slots
	Unready string `json:"unready,omitempty"` // the others, as of shard.Set.String, if Reason is known
	Reason  string `json:"reason,omitempty"`
}

// maxReason bounds the reason in a Lease, in bytes.
const maxReason = 512

// unready is the function of Group.Ready, or nil.
type unready func() (slots shard.Set, reason string)

// of returns the held slots for which this member is not ready, and the reason; "" while it makes progress.
func (u unready) of(held shard.Set) (slots shard.Set, reason string) {
	if u == nil {
		return held.Minus(held), ""
	}
	slots, reason = u()
	return held.Both(slots), reason
}

// statement returns what the Lease of this member says.
func (u unready) statement(held shard.Set) string {
	lacking, reason := u.of(held)
	s := readySlots{Ready: held.Len() - lacking.Len()}
	if !lacking.IsEmpty() && reason != "" {
		s.Unready, s.Reason = lacking.String(), cut(reason, maxReason)
	}
	text, _ := json.Marshal(s) // marshaling this type cannot fail
	return string(text)
}

// readySlotsOf returns what the member with a Lease states. It is the zero value if the member states nothing.
func readySlotsOf(l *lease) (s readySlots) {
	if l == nil || json.Unmarshal([]byte(l.Annotations[readyAnnotation]), &s) != nil {
		return readySlots{}
	}
	return s
}

// lacks reports whether the statement names a slot.
func (s readySlots) lacks(l shard.Layout, slot int) bool {
	set, err := parseSet(l, s.Unready)
	return err == nil && set.Holds(slot)
}

// moves reports whether a slot moves from or to a member.
func (r *record) moves(id string) bool {
	return slices.ContainsFunc(r.slots, func(s slot) bool {
		return s.holder != s.next && (s.holder == id || s.next == id)
	})
}

// give gives a slot of a member to another one. The member then counts as one of an older coverage.
func (r *record) give(from string, g gift) {
	newest := r.newest()
	if m := r.member(from); m.Coverage == newest {
		for i := range r.members {
			if o := &r.members[i]; o.ID != from && o.Coverage == newest {
				o.Coverage++
			}
		}
	}
	r.slots[g.slot].next = g.to
}

// try lets a member take a slot of the member that has most, unless that has only one.
func (r *record) try(id string) {
	most := ""
	for _, m := range r.members {
		if n := r.heldBy(m.ID).Len(); n > 1 && (most == "" || n > r.heldBy(most).Len()) {
			most = m.ID
		}
	}
	for i := range r.slots {
		if s := &r.slots[i]; most != "" && s.holder == most && s.next == most {
			s.next = id
			return
		}
	}
}
