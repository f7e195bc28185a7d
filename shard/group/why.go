package group

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/why"
)

// Why returns why this member does not work on the object with the namespace and uid. Either another member holds its
// slot, or the slot is moving or has no holder. It returns nil while this member holds the slot and keeps it.
//
// The evidence "member", "address" (Options.Address), "slot" and "lease" describe the holder, as far as known, and
// "next" is the target. Why sends no request.
func (g *Group) Why(namespace string, uid types.UID) []why.Cause {
	slot := g.layout.SlotOf(namespace, uid)
	fenced := g.Fence(slot)
	since := g.losing(slot)
	if fenced == nil && since.IsZero() {
		return nil
	}
	g.mu.Lock()
	r, own, errs, forbidden := g.state.record, g.state.id, g.state.errs, g.forbiddenLocked()
	g.mu.Unlock()
	c := why.Cause{
		Type:     why.HeldBy,
		Evidence: map[string]string{"slot": strconv.Itoa(slot), "group": g.opt.Namespace + "/" + g.opt.Name},
	}
	var at slotOf
	if r != nil && slot < len(r.slots) {
		at = slotOf{holder: r.member(r.slots[slot].holder), next: r.member(r.slots[slot].next)}
	}
	switch {
	case fenced == nil, at.holder != nil && at.holder.ID == own && at.next != nil && at.next.ID != own:
		g.moving(&c, slot, at, since)
	case at.holder != nil && at.holder.ID != own:
		g.heldBy(&c, slot, at)
	case at.holder != nil:
		c.Message = fmt.Sprintf("this replica holds slot %d of the object but cannot work on it: %v", slot, fenced)
	case at.next != nil:
		c.Message = fmt.Sprintf("slot %d of the object has no holder and goes to %s next", slot, at.next.Name)
		c.Evidence["next"] = at.next.Name
	default:
		c.Message = fmt.Sprintf("slot %d of the object has no holder, as far as this replica knows", slot)
	}
	switch known := c.Evidence["member"] != "" && c.Evidence["dead"] == ""; {
	case forbidden != nil && !known:
		// The member cannot see changes of Leases: a holder that seems to be dead may be alive, or replaced.
		return []why.Cause{g.forbidden(forbidden)}
	case forbidden != nil:
		return []why.Cause{c, g.forbidden(forbidden)}
	}
	for _, what := range slices.Sorted(maps.Keys(errs)) {
		c.Evidence["error"] = fmt.Sprintf("cannot %s: %v", what, errs[what])
		c.Advice = "This replica cannot join: " + c.Evidence["error"]
	}
	return []why.Cause{c}
}

// forbidden returns the cause that names the missing RBAC rule.
func (g *Group) forbidden(err error) why.Cause {
	return why.Cause{
		Type:    why.Forbidden,
		Message: "this replica may not " + strings.Join(leaseVerbs, ", ") + " leases in namespace " + g.opt.Namespace,
		Evidence: map[string]string{
			"error": err.Error(), "rule": leaseRule(), "resource": "leases." + coordinationv1.GroupName,
			"verbs": strings.Join(leaseVerbs, ","), "namespace": g.opt.Namespace, "group": g.opt.Namespace + "/" + g.opt.Name,
		},
		Advice: "Add the rule " + leaseRule() + " to a Role in namespace " + g.opt.Namespace + " that is bound to this program.",
	}
}

// losing returns since when a held slot is being lost, or zero if it is not.
func (g *Group) losing(slot int) time.Time {
	h := g.holds.Load()
	if h == nil {
		return time.Time{}
	}
	h.term.mu.Lock()
	defer h.term.mu.Unlock()
	if held := h.term.have[slot]; held != nil {
		return held.losing
	}
	return time.Time{}
}

// moving completes the cause for a slot that this member hands over. Running work finishes, and no new work begins.
func (g *Group) moving(c *why.Cause, slot int, at slotOf, since time.Time) {
	to := "another replica"
	if at.next != nil && at.next.ID != "" && (at.holder == nil || at.next.ID != at.holder.ID) {
		to, c.Evidence["next"] = at.next.Name, at.next.Name
	}
	c.Message = fmt.Sprintf("slot %d of the object is moving: this replica hands it over to %s and starts no work for it", slot, to)
	c.Evidence["moving"], c.Since = "true", since
	c.Advice = "It continues automatically in the next replica when the work of the slot in this one has ended."
	c.Progress = since.IsZero() || g.clock.Now().Sub(since) < g.opt.Drain
}

// slotOf has the holder and the target of a slot; nil if there is none.
type slotOf struct{ holder, next *member }

// heldBy completes the cause for a slot that another member holds.
func (g *Group) heldBy(c *why.Cause, slot int, at slotOf) {
	name := at.holder.Name
	c.Message = fmt.Sprintf("replica %s holds slot %d of the object", name, slot)
	c.Advice = "Ask that replica."
	lease := g.leaseOf(at.holder.ID)
	c.Evidence["member"], c.Evidence["lease"] = name, g.opt.Namespace+"/"+lease
	seen, ok := g.view.get(lease)
	if ok {
		if address := seen.Lease().Annotations[addressAnnotation]; address != "" {
			c.Evidence["address"] = address
		}
		if at := seen.Lease().Spec.RenewTime; at != nil {
			c.Evidence["renewed"] = at.UTC().Format(time.RFC3339)
		}
	}
	if at.next != nil && at.next.ID != at.holder.ID {
		c.Message += fmt.Sprintf(", and hands it over to %s", at.next.Name)
		c.Evidence["next"] = at.next.Name
	}
	if !ok || seen.Unchanged(g.clock.Now()) > g.opt.Duration {
		c.Message += "; it seems to be dead and will be replaced soon"
		c.Evidence["dead"] = "true"
	}
}
