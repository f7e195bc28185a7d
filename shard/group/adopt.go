package group

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/shard"
)

// holdings is what a member states in its Lease about its slots. A new record adopts it. The statement may be as old as
// a renewal, so it assigns slots in the record, and proves nothing about their present holder.
type holdings struct {
	Of       int    `json:"of"`
	By       string `json:"by"`
	Leader   string `json:"leader,omitempty"`
	Slots    string `json:"slots"` // as of shard.Set.String
	Weight   int    `json:"weight"`
	Coverage int    `json:"coverage,omitempty"` // see member.Coverage
	// Bounds are the boundaries of the slots; nil: equal ranges.
	Bounds *wireBounds `json:"boundaries,omitempty"`
}

// holdingsOf returns the statement of a Lease, and its slots. ok is false if the Lease has none, or one that no record
// can contain.
func holdingsOf(l *lease) (h holdings, slots shard.Set, ok bool) {
	if json.Unmarshal([]byte(l.Annotations[holdingsAnnotation]), &h) != nil {
		return h, slots, false
	}
	by, err := shard.ParseBy(h.By)
	layout := shard.Layout{By: by, Slots: h.Of}
	if err != nil || h.Of == 0 || layout.Check() != nil || h.Weight < 1 || h.Weight > maxWeight || h.Coverage < 0 {
		return h, slots, false
	}
	if layout, _, err = h.Bounds.decode(layout); err != nil {
		return h, slots, false
	}
	slots, err = parseSet(layout, h.Slots)
	return h, slots, err == nil
}

// encode returns the annotation.
func (h holdings) encode() string {
	text, _ := json.Marshal(h) // marshaling this type cannot fail
	return string(text)
}

// adopt adds the members whose Leases name slots to a record without members. prefix comes before the ID in the name of
// a Lease. The record takes the newest boundaries, and the slots whose ranges they have. A member that holds another
// range does not take part in the record until it has lost that range. The error matches ErrLayout if the Leases name
// slots of another layout only: a record of this layout would stop their holders.
func (r *record) adopt(all []lease, prefix string) error {
	var other error
	for i := range all {
		_, slots, ok := holdingsOf(&all[i])
		if is := slots.Layout(); ok && !slots.IsEmpty() && sameDivision(is, r.layout) && is.Version() > r.layout.Version() {
			r.layout = is
		}
	}
	for i := range all {
		l := &all[i]
		id, isMember := strings.CutPrefix(l.Name, prefix)
		h, slots, ok := holdingsOf(l)
		switch {
		case !isMember || !ok || slots.IsEmpty():
			continue
		case !sameDivision(slots.Layout(), r.layout) || h.Leader != r.leader:
			other = fmt.Errorf("cannot create the group yet: %w: %d slots by %s, led by %q", ErrLayout, h.Of, h.By, h.Leader)
			continue
		}
		m := member{ID: id, Weight: h.Weight, Coverage: h.Coverage}
		if l.Spec.HolderIdentity != nil {
			m.Name = *l.Spec.HolderIdentity
		}
		if l.Spec.AcquireTime != nil {
			m.Since = l.Spec.AcquireTime.UTC().Truncate(time.Second)
		}
		r.members = append(r.members, m)
		r.claim(id, slots)
	}
	if len(r.members) > 0 {
		return nil
	}
	return other
}
