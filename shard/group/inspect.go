package group

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/why"
)

// snapshot is what the parts of a member know. Status, Why and the metrics describe it.
type snapshot struct {
	opt    *Options
	layout shard.Layout
	now    time.Time
	permit *permit // nil: no slots
	known  facts
	view   *view
}

// snapshot reads the permit before the record, so that a slot that has just been released has a known target.
func (g *Group) snapshot() snapshot {
	p := g.fence.permit()
	return snapshot{
		opt: &g.opt, layout: g.layout, now: g.clock.Now(), permit: p, known: g.state.facts(), view: g.view,
	}
}

// group returns the namespace and name of the group.
func (s *snapshot) group() string { return s.opt.Namespace + "/" + s.opt.Name }

// leaseOf returns the last observed Lease of an incarnation.
func (s *snapshot) leaseOf(id string) (leasing.Observation, bool) {
	return s.view.get(leaseName(s.opt.Name, id))
}

// boundaries returns the layout of the record.
func (s *snapshot) boundaries() shard.Layout {
	if r := s.known.record; r != nil && sameDivision(r.layout, s.layout) {
		return r.layout
	}
	return s.layout
}

// slotMembers has the holder and the target of a slot; nil if there is none.
type slotMembers struct{ holder, next *member }

func (s *snapshot) slot(slot int) slotMembers {
	r := s.known.record
	if r == nil || slot < 0 || slot >= len(r.slots) {
		return slotMembers{}
	}
	return slotMembers{holder: r.member(r.slots[slot].holder), next: r.member(r.slots[slot].next)}
}

// Status returns what this member knows. It sends no request.
func (g *Group) Status() Status { return newStatus(g.snapshot()) }

// Here returns nil if this member works on an object, and otherwise a *HolderError with the name of the holder, if
// known. It is for external requests, such as callbacks, that reach any member.
func (g *Group) Here(namespace string, uid types.UID) error {
	err := g.FenceOf(namespace, uid)
	if err == nil {
		return nil
	}
	s := g.snapshot()
	slot := s.boundaries().SlotOf(namespace, uid)
	e := &HolderError{Slot: slot, Err: err}
	if at := s.slot(slot); at.holder != nil && at.holder.ID != s.known.id {
		e.Holder = at.holder.Name
	}
	return e
}

// Why returns why this member does not work on the object with the namespace and uid. Either another member holds its
// slot, or the slot is moving or has no holder. It returns nil while this member holds the slot and keeps it.
//
// The evidence "member", "address" (Options.Address), "slot" and "lease" describe the holder, as far as known, and
// "next" is the target. Why sends no request.
func (g *Group) Why(namespace string, uid types.UID) []why.Cause {
	s := g.snapshot()
	return explain(s, s.boundaries().SlotOf(namespace, uid))
}

// Report is [Read] for the group of this member.
func (g *Group) Report(ctx context.Context) (*Report, error) {
	return report(ctx, g.client.WithTimeout(time.Minute), g.opt.Namespace, g.opt.Name)
}

// Collector returns a collector for the metrics of this member.
func (g *Group) Collector() prometheus.Collector { return collector{g.snapshot} }

// Rights returns the permissions that a member needs. They cover all Leases of the namespace, since the names of
// members' Leases are random. Rights implements rights.Asker.
func (g *Group) Rights() []rights.Right { return neededRights(&g.opt) }
