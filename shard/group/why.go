package group

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fairlead-io/fairlead/why"
)

// explain returns why the member does not work on an object of a slot, or nil if it holds and keeps the slot.
func explain(s snapshot, slot int) []why.Cause {
	fenced, since := s.permit.check(slot), s.permit.losingSince(slot)
	if fenced == nil && since.IsZero() {
		return nil
	}
	c := why.Cause{
		Type:     why.HeldBy,
		Evidence: map[string]string{"slot": strconv.Itoa(slot), "group": s.group()},
	}
	own, at := s.known.id, s.slot(slot)
	switch {
	case fenced == nil, at.holder != nil && at.holder.ID == own && at.next != nil && at.next.ID != own:
		explainMove(s, &c, slot, at, since)
	case at.holder != nil && at.holder.ID != own:
		explainHolder(s, &c, slot, at)
	case at.holder != nil:
		c.Message = fmt.Sprintf("this replica holds slot %d of the object but cannot work on it: %v", slot, fenced)
	case s.known.record != nil && s.known.record.between().Holds(slot):
		c.Message = fmt.Sprintf("slot %d of the object has no holder while its boundaries change", slot)
		c.Advice = "It continues automatically when the work of the slots beside it has ended, or after " +
			stepTimeout.String() + "."
		c.Progress = true
	case at.next != nil:
		c.Message = fmt.Sprintf("slot %d of the object has no holder and goes to %s next", slot, at.next.Name)
		c.Evidence["next"] = at.next.Name
	default:
		c.Message = fmt.Sprintf("slot %d of the object has no holder, as far as this replica knows", slot)
	}
	known := c.Evidence["member"] != "" && c.Evidence["dead"] == ""
	switch forbidden := s.known.forbidden(); {
	case forbidden != nil && !known:
		// The member cannot see changes of Leases: a holder that seems to be dead may be alive, or replaced.
		return []why.Cause{explainForbidden(s, forbidden)}
	case forbidden != nil:
		return []why.Cause{c, explainForbidden(s, forbidden)}
	}
	for _, what := range slices.Sorted(maps.Keys(s.known.errs)) {
		c.Evidence["error"] = fmt.Sprintf("cannot %s: %v", what, s.known.errs[what])
		c.Advice = "This replica cannot join: " + c.Evidence["error"]
	}
	return []why.Cause{c}
}

// explainForbidden returns the cause that names the missing RBAC rule.
func explainForbidden(s snapshot, err error) why.Cause {
	return why.Cause{
		Type:    why.Forbidden,
		Message: "this replica may not " + strings.Join(leaseVerbs, ", ") + " leases in namespace " + s.opt.Namespace,
		Evidence: map[string]string{
			"error": err.Error(), "rule": leaseRule(), "resource": "leases." + coordinationv1.GroupName,
			"verbs": strings.Join(leaseVerbs, ","), "namespace": s.opt.Namespace, "group": s.group(),
		},
		Advice: "Add the rule " + leaseRule() + " to a Role in namespace " + s.opt.Namespace +
			" that is bound to this program.",
	}
}

// explainMove completes the cause for a slot that this member hands over. Running work finishes, and no new work
// begins.
func explainMove(s snapshot, c *why.Cause, slot int, at slotMembers, since time.Time) {
	to := "another replica"
	if at.next != nil && at.next.ID != "" && (at.holder == nil || at.next.ID != at.holder.ID) {
		to, c.Evidence["next"] = at.next.Name, at.next.Name
	}
	c.Message = fmt.Sprintf(
		"slot %d of the object is moving: this replica hands it over to %s and starts no work for it", slot, to)
	c.Evidence["moving"], c.Since = "true", since
	c.Advice = fmt.Sprintf("It continues automatically in the next replica when the work of the slot in this one has "+
		"ended, such as a call in progress. That work is cut off after %v.", moveTimeout)
	c.Progress = since.IsZero() || s.now.Sub(since) < moveTimeout
}

// explainHolder completes the cause for a slot that another member holds.
func explainHolder(s snapshot, c *why.Cause, slot int, at slotMembers) {
	name := at.holder.Name
	c.Message = fmt.Sprintf("replica %s holds slot %d of the object", name, slot)
	c.Advice = "Ask that replica."
	lease := leaseName(s.opt.Name, at.holder.ID)
	c.Evidence["member"], c.Evidence["lease"] = name, s.opt.Namespace+"/"+lease
	seen, ok := s.leaseOf(at.holder.ID)
	if ok {
		if address := seen.Lease().Annotations[addressAnnotation]; address != "" {
			c.Evidence["address"] = address
		}
		if at := seen.Lease().Spec.RenewTime; at != nil {
			c.Evidence["renewed"] = at.UTC().Format(time.RFC3339)
		}
	}
	if stated := readySlotsOf(seen.Lease()); stated.lacks(s.boundaries(), slot) {
		c.Message += ", and is not ready for it: " + stated.Reason
		c.Evidence["unready"] = stated.Reason
	}
	if at.next != nil && at.next.ID != at.holder.ID {
		c.Message += fmt.Sprintf(", and hands it over to %s", at.next.Name)
		c.Evidence["next"] = at.next.Name
	}
	if !ok || seen.Unchanged(s.now) > max(s.opt.Duration, durationOf(seen.Lease())) {
		c.Message += "; it seems to be dead and will be replaced soon"
		c.Evidence["dead"] = "true"
	}
}
