package causes

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/why"
)

// OutdatedCRD means that the CustomResourceDefinition is older than the executor, so that no call can be made.
const OutdatedCRD why.Type = "OutdatedCRD"

// awaited returns the causes in the Ready condition of a waiting operation, the most direct first.
func awaited(op *v1alpha1.Operation, known Known, now time.Time) (all []why.Cause) {
	c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Message == "" {
		return nil
	}
	switch c.Reason {
	case v1alpha1.ReasonWaitingForLock:
		return []why.Cause{lockOf(op, c.Message)}
	case v1alpha1.ReasonWaitingForShare:
		if _, share, ok := strings.Cut(c.Message, "the share of namespace "+op.Namespace+" of "); ok {
			return []why.Cause{Share(op.Namespace, share, LastStep(op))}
		}
		return []why.Cause{rateLimited(op.Namespace, c.Message, "", LastStep(op))}
	case v1alpha1.ReasonOutdatedCRD:
		return []why.Cause{Outdated(c.Message, LastStep(op))}
	case v1alpha1.ReasonWaitingForWebhook, v1alpha1.ReasonNotReleased:
	default:
		return nil
	}
	words := strings.FieldsFunc(c.Message, func(r rune) bool { return strings.ContainsRune(" ,:;", r) })
	for _, t := range Due(op, known) {
		if en := record.Entry(&op.Status, t); !slices.Contains(words, t.ID) || en != nil && en.AwaitsCallback() {
			continue
		}
		switch since := DueSince(op, t, now); {
		case c.Reason == v1alpha1.ReasonNotReleased:
			all = append(all, NotReleased(op.Namespace, t.ID, c.Message, since))
		case strings.Contains(c.Message, "quarantined"):
			all = append(all, Quarantined(op.Namespace, t.ID, "", since))
		default:
			all = append(all, Missing(op.Namespace, t.ID, since))
		}
	}
	return all
}

// behind parses the condition about the preceding operation: its id, type and resource, and the locked resource.
var behind = regexp.MustCompile(`^waiting for the end of operation (\S+) \((\w+)\) of (.+), because of (.+)$`)

// lockOf returns the cause in the condition's message.
func lockOf(op *v1alpha1.Operation, message string) why.Cause {
	said := behind.FindStringSubmatch(message)
	if said == nil {
		return lockHeld(op, nil, message, map[string]string{})
	}
	var first *why.Object
	if kind, id, ok := strings.Cut(said[3], "/"); ok {
		first = OperationObject(op.Namespace, v1alpha1.OperationName(kind, id))
	}
	return lockHeld(op, first, "it waits for the end of operation "+said[1]+" of "+said[3]+", since both need "+said[4],
		map[string]string{"operation": said[1], "type": said[2], "holder": said[3], "resource": said[4]})
}

func lockHeld(op *v1alpha1.Operation, first *why.Object, message string, evidence map[string]string) why.Cause {
	return why.Cause{
		Type: why.LockHeld, Message: message, Since: LastStep(op), Until: op.Deadline(), Evidence: evidence, About: first,
		Advice: "It continues automatically. If that takes too long, ask `why` about the other operation, or cancel it.",
	}
}

// LockHeld returns the cause of op waiting for the end of first.
func LockHeld(op, first *v1alpha1.Operation) why.Cause {
	holder := first.Spec.ResourceType + "/" + first.Spec.ResourceID
	message := "it waits for the end of operation " + first.EffectiveID() + " of " + holder
	evidence := map[string]string{
		"operation": first.EffectiveID(), "type": string(first.Spec.OperationType), "holder": holder,
	}
	if r, ok := contested(op, first); ok {
		evidence["resource"] = r.ResourceType + "/" + r.ResourceID
		message += ", since both need " + evidence["resource"]
	}
	return lockHeld(op, OperationObject(first.Namespace, first.Name), message, evidence)
}

// contested returns a resource that one of two operations locks and the other locks or has as its own.
func contested(a, b *v1alpha1.Operation) (v1alpha1.ResourceReference, bool) {
	for _, pair := range [][2]*v1alpha1.Operation{{a, b}, {b, a}} {
		mine, other := pair[0], pair[1]
		for r := range mine.Locks() {
			if r == other.Spec.ResourceReference {
				return r, true
			}
			for theirs := range other.Locks() {
				if r == theirs {
					return r, true
				}
			}
		}
	}
	return v1alpha1.ResourceReference{}, false
}
