package group

import (
	"cmp"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/shard"
)

const (
	// balanceInterval is the time between changes of the boundaries, which list objects again.
	balanceInterval = 5 * time.Minute
	// stepTimeout bounds a step of the boundaries. Its slots without work have no holder while others still end theirs.
	stepTimeout = 5 * time.Second
	// leastGain is how much the largest load of a member has to fall: by one part in leastGain.
	leastGain = 4
)

// balance decides when the boundaries of the slots change, by the histograms in the Leases of the members. Only the
// goroutine of Run uses it.
type balance struct {
	opt   *Options
	view  *view
	clock leasing.Clock
	log   *slog.Logger

	layout, goal shard.Layout  // of the last record
	since        leasing.Stamp // when this member has first seen them
	changed      leasing.Stamp // when the boundaries last had a goal, or were new to this member; zero: never
	rev          int64         // of the last record
	quiet        leasing.Stamp // when this member has first seen that revision

	before, after float64 // largest loads of a member, for the last new goal
}

// plan returns what changes in the boundaries of a record: a new goal, or that the present one is given up. first
// reports whether this member decides: the others do if it ends.
func (b *balance) plan(r *record, first bool) (goal shard.Layout, stay bool) {
	now := b.clock.Stamp()
	if r.layout != b.layout || r.goal != b.goal {
		b.layout, b.goal, b.since = r.layout, r.goal, now
		if r.goal != (shard.Layout{}) || r.layout.Version() > 0 {
			b.changed = now
		}
	}
	if r.rev != b.rev {
		b.rev, b.quiet = r.rev, now
	}
	switch {
	case !first || r.founded == "" || r.layout.By != shard.Namespace:
		return goal, false
	case r.goal != (shard.Layout{}):
		if stay = b.since.AtLeast(now.Time) > stepTimeout; stay {
			b.log.Warn("cannot change the boundaries of slots now: their work takes too long")
		}
		return goal, stay
	case b.quiet.AtLeast(now.Time) < 2*b.opt.period, !b.changed.IsZero() && b.changed.AtLeast(now.Time) < b.opt.balance:
		return goal, false
	}
	points, ok := b.points(r)
	if !ok {
		return goal, false
	}
	starts := quantiles(points, len(r.slots))
	next, err := r.layout.WithStarts(1, starts)
	if err != nil {
		return goal, false
	}
	b.before, b.after = r.largestLoad(r.layout, points), r.largestLoad(next, points)
	if total(points) < len(r.slots) || b.after*leastGain > b.before*(leastGain-1) {
		return goal, false
	}
	return next, false
}

// announce logs what a written change by this member does to the boundaries.
func (b *balance) announce(before, after *record) {
	percent := func(share float64) string { return strconv.Itoa(int(100*share+0.5)) + " %" }
	none := shard.Layout{}
	switch {
	case before.goal == none && after.goal != none:
		b.log.Info("the boundaries of slots change, so that members have similar numbers of objects",
			"largest", percent(b.before), "next", percent(b.after))
	case before.goal != none && after.goal == none && after.layout != before.layout:
		b.log.Info("the boundaries of slots have changed", "version", after.layout.Version())
	}
}

// points returns the histogram of all objects. ok is false while slots move, or a member does not state what it holds
// or does not know boundaries.
func (b *balance) points(r *record) (all []point, ok bool) {
	if r.newest() > 0 || slices.ContainsFunc(r.slots, func(s slot) bool { return s.holder == "" || s.holder != s.next }) {
		return nil, false
	}
	for _, m := range r.members {
		s, _ := b.view.get(leaseName(b.opt.Name, m.ID))
		if m.Leaving || !knowsBounds(s.Lease()) {
			return nil, false
		}
		h, points, ok := histogramOf(s.Lease())
		if !ok || h.Version != r.layout.Version() || h.Slots != r.heldBy(m.ID).String() {
			return nil, false
		}
		all = append(all, points...)
	}
	slices.SortFunc(all, func(a, b point) int { return cmp.Compare(a.hash, b.hash) })
	return all, true
}

// dominant returns the namespace with at least half of all objects, or nil if there is none, or if the members do not
// state what they hold.
func (r *record) dominant(leaseOf func(id string) *lease) *NamespaceReport {
	var largest NamespaceReport
	all := 0
	for _, m := range r.members {
		h, points, ok := histogramOf(leaseOf(m.ID))
		if !ok {
			return nil
		}
		if all += total(points); h.Objects > largest.Objects {
			largest.Namespace, largest.Objects = h.Largest, h.Objects
		}
	}
	if largest.Of = all; all < len(r.slots) || 2*largest.Objects < all {
		return nil
	}
	return &largest
}

// knowsBounds reports whether the member with a Lease reads records with boundaries.
func knowsBounds(l *lease) bool {
	if l == nil {
		return false
	}
	format, err := strconv.Atoi(l.Annotations[formatAnnotation])
	return err == nil && format >= boundsFormat
}

func total(points []point) (n int) {
	for _, p := range points {
		n += p.objects
	}
	return n
}

// quantiles returns boundaries of n slots that have similar numbers of objects. They lie between points, which are
// sorted. A point that is larger than a slot has a slot of its own, and some slots are empty then.
func quantiles(points []point, n int) []uint64 {
	starts, sum, all, i := make([]uint64, n), 0, total(points), 0
	for slot := 1; slot < n; slot++ {
		// The boundary with the sum closest to all*slot/n; all terms are multiplied by n.
		for i < len(points) && 2*all*slot > n*(2*sum+points[i].objects) {
			sum += points[i].objects
			i++
		}
		if i > 0 {
			starts[slot] = points[i-1].hash
			if starts[slot] < 1<<64-1 {
				starts[slot]++
			}
		}
	}
	return starts
}

// largestLoad returns the largest share of the objects that a member would have by a layout, with the slots that it
// holds. The share of a member with another weight is as if all had the same one.
func (r *record) largestLoad(l shard.Layout, points []point) (largest float64) {
	loads, weights := map[string]int{}, 0
	for _, p := range points {
		loads[r.slots[l.SlotOfHash(p.hash)].holder] += p.objects
	}
	for _, m := range r.members {
		weights += m.Weight
	}
	for _, m := range r.members {
		share := float64(loads[m.ID]) * float64(weights) / float64(m.Weight*len(r.members))
		largest = max(largest, share/float64(max(1, total(points))))
	}
	return largest
}
