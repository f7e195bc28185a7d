package dependent

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// causes returns why the children are not as desired. The order is that of the graph, since earlier nodes block later
// ones.
func causes(nodes states, stale []error) (all []why.Cause) {
	for _, s := range nodes {
		all = append(all, nodeCauses(nodes, s)...)
	}
	for _, err := range stale {
		all = append(all, failure(err)...)
	}
	return all
}

func nodeCauses(nodes states, s *state) []why.Cause {
	all := ownCauses(s)
	if len(all) == 0 && len(s.blocked) > 0 {
		all = []why.Cause{blockedBy(nodes, s)}
	}
	return placed(s, nil, all)
}

// ownCauses returns the causes of a node without those of the nodes that it comes after.
func ownCauses(s *state) (all []why.Cause) {
	if s.err != nil {
		told := failure(s.err)
		if s.external != nil && errors.Is(s.err, ErrNotReady) {
			for i := range told {
				told[i].Since, told[i].Until = s.outside.since, s.until
				told[i].Advice = "The graph still reads it. Check the resource where it is managed."
			}
		}
		all = append(all, placed(s, nil, told)...)
	}
	for _, w := range s.wants {
		switch {
		case w.err != nil:
			told := placed(s, w, failure(w.err))
			for i := range told {
				if told[i].Until.IsZero() {
					told[i].Until = w.until
				}
			}
			all = append(all, told...)
		case !w.ready && w.why != "":
			all = append(all, placed(s, w, []why.Cause{unready(s, w)})...)
		}
	}
	switch {
	case len(all) > 0:
	case s.leftOut():
		all = append(all, why.Cause{
			Type: why.Parked, Message: fmt.Sprintf("%s is not available: %s", s.name, s.lacks),
			Evidence: map[string]string{"childKind": s.kind.Kind},
			Advice:   "Install its CustomResourceDefinition if the child is needed. The graph then continues.",
		})
	case s.external != nil && s.status.State != StateReady && s.status.State != StateAbsent && len(s.blocked) == 0:
		all = append(all, why.Cause{
			Type: why.Parked, Until: s.until,
			Message: strings.TrimSpace(fmt.Sprintf("%s is %s: %s", s.name, s.status.State, s.status.Message)),
		})
	case s.unwanted() && s.present > 0:
		all = append(all, removals(s)...)
	}
	return all
}

// blockedBy returns the cause for a node that waits for others. It follows the first of them to the node with a reason
// of its own, and adds that reason with its advice.
func blockedBy(nodes states, s *state) why.Cause {
	after := strings.Join(s.blocked, " and ")
	c := why.Cause{
		Type: why.Parked, Message: s.name + " waits for " + after, Advice: "It continues once " + after + " is ready.",
		Evidence: map[string]string{"after": strings.Join(s.blocked, ", ")},
	}
	if len(s.blocked) > 1 {
		c.Advice = "It continues once " + after + " are ready."
	}
	for {
		s = nodes.named(s.blocked[0])
		own := ownCauses(s)
		switch {
		case len(own) > 0:
			c.Message += ": " + own[0].Message
			c.About = own[0].About
			c.Advice = strings.TrimSpace(c.Advice + " " + own[0].Advice)
			return c
		case len(s.blocked) == 0:
			c.Message += ": " + s.name + " is " + strings.ToLower(string(s.status.State))
			return c
		}
		c.Message += ", and " + s.name + " for " + strings.Join(s.blocked, " and ")
	}
}

// placed adds the node, and the child if w is not nil, to causes.
func placed(s *state, w *want, causes []why.Cause) []why.Cause {
	for i := range causes {
		c := &causes[i]
		if c.Evidence == nil {
			c.Evidence = map[string]string{}
		}
		c.Evidence["node"] = s.name
		if w == nil {
			continue
		}
		c.Evidence["child"], c.Evidence["childKind"] = w.key.String(), s.kind.Kind
		c.About = aboutChild(s.node, w.key)
	}
	return causes
}

func aboutChild(n *node, k client.Key) *why.Object {
	return &why.Object{Group: n.kind.Group, Kind: n.kind.Kind, Namespace: k.Namespace, Name: k.Name}
}

// unready returns the cause for a child that is not ready.
func unready(s *state, w *want) why.Cause {
	c := why.Cause{
		Type: why.Parked, Until: w.until, Message: fmt.Sprintf("child %s %s: %s", s.kind.Kind, w.key, w.why),
		Evidence: map[string]string{},
	}
	if w.is == nil {
		return c
	}
	if w.known != nil {
		c.Since = w.known.since
	}
	if at := w.is.GetDeletionTimestamp(); at != nil {
		c.Since = at.Time
		c.Evidence["finalizers"] = strings.Join(w.is.GetFinalizers(), ", ")
		c.Advice = "The deletion of the child is blocked. Check its finalizers."
		return c
	}
	if says := conditionsOf(w.is); says != "" {
		c.Message += ": " + says
		c.Evidence["conditions"] = says
	}
	c.Advice = "Ask `why` about that child."
	return c
}

// removals returns the causes for children that are not wanted and not gone.
func removals(s *state) (all []why.Cause) {
	for _, obj := range s.remaining() {
		k := client.KeyOf(obj)
		c := why.Cause{
			Type: why.Parked, Message: fmt.Sprintf("child %s %s has to be gone first", s.kind.Kind, k),
			Evidence: map[string]string{"child": k.String(), "childKind": s.kind.Kind}, About: aboutChild(s.node, k),
		}
		if at := obj.GetDeletionTimestamp(); at != nil {
			c.Since = at.Time
			c.Evidence["finalizers"] = strings.Join(obj.GetFinalizers(), ", ")
			c.Advice = "The deletion of the child is blocked. Check its finalizers."
		}
		if all = append(all, c); len(all) == maxLeft {
			break
		}
	}
	return all
}

// maxLeft bounds the causes of removals for one node.
const maxLeft = 4

// failure returns the causes for an error about a child.
func failure(err error) []why.Cause {
	if told := why.Of(err); len(told) > 0 {
		return append([]why.Cause(nil), told...)
	}
	causes := reconcile.Causes(err)
	for i := range causes {
		c := &causes[i]
		switch {
		case errors.Is(err, ErrForeign):
			c.Type, c.Message = why.Conflict, err.Error()
			c.Advice = "Give the child another name, delete that object, or take it over with dependent.Adopt."
		case errors.Is(err, ErrContended):
			c.Type, c.Message = why.Conflict, err.Error()
			c.Advice = "Find the other writer: kubectl get -o yaml --show-managed-fields shows which manager has set " +
				"which field, and when."
		case errors.Is(err, ErrImmutable):
			c.Message, c.Advice = err.Error(), "The option dependent.Recreate deletes and recreates the child."
		case errors.Is(err, ErrNotReady):
			c.Type, c.Message = why.DeadlinePassed, err.Error()
			c.Advice = "The graph still waits for it. Ask `why` about that child."
		}
	}
	return causes
}

// conditionsOf describes the conditions of an object that are not True.
func conditionsOf(obj client.Object) string {
	var content map[string]any
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content = u.Object
	} else if m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err == nil {
		content = m
	}
	all, _, _ := unstructured.NestedSlice(content, "status", "conditions")
	var says []string
	for _, one := range all {
		one, _ := one.(map[string]any)
		if one["status"] == "True" {
			continue
		}
		text := fmt.Sprintf("%v is %v", one["type"], one["status"])
		for _, more := range []string{"reason", "message"} {
			if s, _ := one[more].(string); s != "" {
				text += ", " + s
			}
		}
		says = append(says, text)
	}
	return strings.Join(says, "; ")
}
