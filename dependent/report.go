package dependent

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/conditions"
)

// State is how the children of a node are.
type State string

// The states of a node.
const (
	StateReady       State = "Ready"       // all are there, as they should be, and ready
	StateProgressing State = "Progressing" // they are there, or about to be, and not all are ready
	StateWaiting     State = "Waiting"     // for the nodes that it comes after
	StateFailed      State = "Failed"      // something about them cannot be done; it is tried again
	StateAbsent      State = "Absent"      // they are not wanted, and there are none
	StateRemoving    State = "Removing"    // they are not wanted, and some are still there
)

// NodeStatus tells how the children of one node are.
type NodeStatus struct {
	Name     string
	State    State
	Message  string // why it is so, for people; empty if there is nothing to say
	Children int    // that exist
	Ready    int    // of those that are wanted
	Err      error  // a *ChildError, or several; nil unless Failed
	// Unknown reports that the state of the children is not known: something external was not read yet, or an error
	// hides them. [Node.In] returns what was read last, or nil. Nodes behind an unknown one keep their children.
	Unknown bool
}

// Report tells how the children of one primary are, at the end of a round.
type Report struct {
	obj   metav1.Object
	nodes []NodeStatus
	round *round
}

// Nodes returns the nodes in the order in which their children are created.
func (r *Report) Nodes() []NodeStatus { return r.nodes }

// Ready says whether all children are there, as they should be, and ready.
func (r *Report) Ready() bool { return len(r.in(StateReady, StateAbsent)) == len(r.nodes) }

// conditionDependents is the type of the condition that sums up the nodes: True if all are Ready, False if one has
// failed, and else Unknown.
const conditionDependents = "Dependents"

// Conditions returns what a status may say: the condition Dependents, and Reconciling while work goes on. What else is
// to be said of the primary is added to it, before it is put into the status; the condition Ready is computed from all.
func (r *Report) Conditions() *conditions.Set {
	if r.obj == nil { // a report of nothing
		return conditions.Of(&metav1.ObjectMeta{})
	}
	set := conditions.Of(r.obj)
	failed, waiting := r.in(StateFailed), r.in(StateProgressing, StateWaiting, StateRemoving)
	switch {
	case len(failed) > 0:
		set.False(conditionDependents, "Failed", "%s", strings.Join(failed, "; "))
	case len(waiting) > 0:
		set.Unknown(conditionDependents, "Waiting", "%s", strings.Join(waiting, "; "))
	default:
		set.True(conditionDependents, "Ready", "")
	}
	return set
}

// Into writes Conditions into those of a status.
func (r *Report) Into(conditions *[]metav1.Condition) {
	if conditions != nil {
		r.Conditions().Into(conditions)
	}
}

// in tells of the nodes that are in one of these states.
func (r *Report) in(states ...State) (all []string) {
	for _, n := range r.nodes {
		for _, s := range states {
			if n.State == s {
				all = append(all, strings.TrimSuffix(n.Name+": "+n.Message, ": "))
			}
		}
	}
	return all
}

// In returns the child of a node as a report knows it, for the function of [Graph.Status]. It is nil while the child
// does not exist, and may be nil while it is unknown ([NodeStatus].Unknown). It is READ-ONLY.
func (n *Node[C]) In(r *Report) *C {
	for _, c := range n.AllIn(r) {
		return c
	}
	return nil
}

// AllIn returns the children of a node as a report knows them. They are READ-ONLY.
func (n *Node[C]) AllIn(r *Report) []*C {
	if r == nil {
		return nil
	}
	return childrenOf(r.round, n)
}
