package store

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/shard"
)

// order is how the versions of a store compare. The writer lock guards it. All parts of a store share one.
type order struct {
	opaque bool // an opaque version was seen: versions are only compared for equality
}

// coverage is what the store knows of the objects of one scope: one namespace, or all of them. It is plain data without
// references to the store. The writer lock guards it.
type coverage struct {
	ns         string // "": all namespaces
	order      *order
	version    version
	committed  bool // a list was applied
	resuming   bool // the state loaded from disk may not be current yet
	dropped    bool // the scope is not watched any more
	status     source.Status
	quarantine map[Key]source.Quarantined
	share      *share // nil: all objects are held
	surveyed   uint64 // number of the last survey that the scope has reached
}

// count returns the number of objects of the scope in a base.
func (c *coverage) count(base *state) int {
	if c.ns == "" {
		return base.objects.Len()
	}
	n := 0
	for g := range base.groups.All() {
		if g.shape.ns == c.ns {
			n += g.ids.Len()
		}
	}
	return n
}

// admits returns an error for an object that does not belong to the scope.
func (c *coverage) admits(o *source.Object) error {
	switch {
	case len(o.Header.Name) == 0 || len(o.Header.Name) > 1<<15:
		return fmt.Errorf("cannot keep object %q: %w", o.Header.Name, errNoName)
	case c.ns != "" && c.ns != string(o.Header.Namespace):
		return fmt.Errorf("cannot keep object %s/%s in scope %q: %w", o.Header.Namespace, o.Header.Name, c.ns,
			errForeignNS)
	}
	return nil
}

// isOld reports whether a change is older than the known state, or repeats it.
func (c *coverage) isOld(ver version, prior *Record, deleted bool) bool {
	seen := c.version
	if prior != nil {
		seen = prior.ver
	}
	if seen.isZero() || ver.isZero() {
		return false
	}
	order, ok := ver.compare(seen)
	if !ok || c.order.opaque {
		return prior != nil && !deleted && ver.equal(seen)
	}
	if deleted {
		return order < 0
	}
	return order <= 0
}

// advance moves the version of the scope.
func (c *coverage) advance(ver version) {
	if ver.isZero() {
		return
	}
	if ver.text != nil && len(*ver.text) <= 18 {
		c.order.opaque = true
	}
	if order, ok := ver.compare(c.version); !ok || order > 0 {
		c.version = ver
		c.share.pass(ver)
	}
}

// unquarantine removes an object that can be read now.
func (c *coverage) unquarantine(k Key) {
	if len(c.quarantine) > 0 {
		delete(c.quarantine, k)
	}
}

// applied reports whether the base has seen a version of an object. prior is its record in the base, or nil.
func (c *coverage) applied(ver version, prior *Record) bool {
	if c.order.opaque {
		return prior != nil && prior.ver.equal(ver)
	}
	return c.version.atLeast(ver) || prior != nil && prior.ver.atLeast(ver)
}

// refused reports whether the server refuses to list this scope.
func (c *coverage) refused() bool {
	if c.status.Phase != source.Degraded {
		return false
	}
	switch c.status.Reason {
	case source.ReasonUnauthorized, source.ReasonForbidden, source.ReasonNotFound:
		return true
	}
	return false
}

// refusal returns why a scope was never listed, if the server refuses it.
func (c *coverage) refusal() error {
	if c.committed || !c.refused() {
		return nil
	}
	if c.status.Err != nil {
		return c.status.Err
	}
	return errors.New(string(c.status.Reason))
}

// isComplete reports whether all objects of the scope were listed, and the source has caught up with the server.
func (c *coverage) isComplete() bool { return (c.committed || c.vacant()) && !c.resuming }

// share is the slots that a scope holds, if it does not hold all objects. The writer lock guards it.
type share struct {
	held     shard.Set
	unlisted shard.Set // part of held: new slots of which no list was applied yet
	gains    []gain
}

// gain is slots that were listed at a version that the scope has not reached yet.
type gain struct {
	slots shard.Set
	ver   version
}

// in reports whether an object is in one of some slots.
func (i *ident) in(set *shard.Set) bool {
	if set.Layout().By == shard.Namespace {
		return set.Has(i.ns, "")
	}
	return set.Has("", types.UID(i.uid()))
}

// lacks reports whether the namespace alone implies that none of its objects is held.
func (h *share) lacks(namespace string) bool {
	return h != nil && (h.held.IsEmpty() || h.held.Layout().By == shard.Namespace && !h.held.Has(namespace, ""))
}

// elsewhere reports whether an object is of a slot that is not held.
func (c *coverage) elsewhere(r *Record) bool { return c.share != nil && !r.id.in(&c.share.held) }

// vacant reports whether no slot is held, so that there are no objects to list.
func (c *coverage) vacant() bool { return c.share != nil && c.share.held.IsEmpty() }

// whole reports whether all held slots have been listed.
func (c *coverage) whole() bool { return c.share == nil || c.share.unlisted.IsEmpty() }

// came reports whether an object is of a new slot that is listed for the first time.
func (c *coverage) came(r *Record) bool { return c.share != nil && r.id.in(&c.share.unlisted) }

// has reports whether the slots are held and were listed.
func (h *share) has(slots shard.Set) bool {
	return slots.Minus(h.held.Minus(h.unlisted)).IsEmpty()
}

// listed records that the slots of a replacement were listed at a version.
func (c *coverage) listed(gained *shard.Set, ver version) {
	h := c.share
	switch {
	case h == nil:
	case gained == nil:
		h.unlisted, h.gains = shard.Set{}, nil
	default:
		h.unlisted = h.unlisted.Minus(*gained)
		h.gains = append(h.gains, gain{*gained, ver})
		h.pass(c.version)
	}
}

// pass forgets the gains that the scope has reached.
func (h *share) pass(ver version) {
	if h != nil && len(h.gains) > 0 {
		h.keepGains(func(g *gain) bool { return !ver.atLeast(g.ver) })
	}
}

// keepGains filters h.gains by keep, which may modify a gain.
func (h *share) keepGains(keep func(*gain) bool) {
	var kept []gain
	for _, g := range h.gains {
		if keep(&g) {
			kept = append(kept, g)
		}
	}
	h.gains = kept
}

// knew reports whether an object came with its slot, by a list at least as new as its version.
func (h *share) knew(r *Record) bool {
	return h != nil && slices.ContainsFunc(h.gains, func(g gain) bool {
		return r.id.in(&g.slots) && g.ver.atLeast(r.ver)
	})
}

// coverages are those of a store by namespace; "" is all namespaces. All parts of the store share the map. The writer
// lock guards it.
type coverages map[string]*coverage

// of returns the coverage that a namespace belongs to; nil if none is watched.
func (all coverages) of(namespace string) *coverage {
	if c := all[namespace]; c != nil {
		return c
	}
	return all[""]
}

// quarantined returns the objects that could not be read and have not been replaced by readable ones.
func (all coverages) quarantined() (out []source.Quarantined) {
	for _, c := range all {
		for _, q := range c.quarantine {
			out = append(out, q)
		}
	}
	return out
}

// version returns the lowest version of all scopes, and "" until each scope was listed once.
func (all coverages) version() string {
	var low version
	for _, c := range all {
		if c.version.isZero() {
			return ""
		}
		if low.isZero() || low.newer(c.version) {
			low = c.version
		}
	}
	return low.String()
}

// areComplete reports whether at least one scope is complete, and all others are refused by the server.
func (all coverages) areComplete() bool {
	some := false
	for _, c := range all {
		complete := c.isComplete()
		some = some || complete
		if !complete && !c.refused() {
			return false
		}
	}
	return some
}

// hold changes the slots that the scope holds.
func (c *coverage) hold(set shard.Set) {
	if c.share == nil {
		c.share = &share{held: set.Layout().Set()}
	}
	h := c.share
	h.unlisted = set.Minus(h.held.Minus(h.unlisted))
	h.held = set
	h.keepGains(func(g *gain) bool {
		g.slots = g.slots.Both(set)
		return !g.slots.IsEmpty()
	})
	for k, q := range c.quarantine {
		tells := q.Namespace != "" && set.Layout().By == shard.Namespace || q.UID != "" && set.Layout().By == shard.UID
		if set.IsEmpty() || tells && !set.Has(q.Namespace, types.UID(q.UID)) {
			delete(c.quarantine, k)
		}
	}
}

// covers reports whether all objects of a namespace are held and listed, in a store of some slots. namespaced is
// Options.Namespaced.
func (h *share) covers(namespace string, namespaced bool) bool {
	if h.held.IsAll() {
		return h.unlisted.IsEmpty()
	}
	some := namespace != "" || !namespaced // not all namespaces
	return some && h.held.Layout().By == shard.Namespace && h.held.Has(namespace, "") &&
		!h.unlisted.Both(h.held).Has(namespace, "")
}

// misses reports whether an object is of a slot that is not held, or its slot cannot be determined and not all slots
// are held.
func (h *share) misses(namespace string, uid types.UID) bool {
	if uid == "" && h.held.Layout().By == shard.UID {
		return !h.held.IsAll()
	}
	return !h.held.Has(namespace, uid)
}
