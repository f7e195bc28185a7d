package dependent

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/conditions"
)

// State is the state of the children of a node.
type State string

// The states of a node.
const (
	StateReady       State = "Ready"       // all exist, are up to date and ready
	StateProgressing State = "Progressing" // they exist or are about to, and not all are ready
	StateWaiting     State = "Waiting"     // waits for the nodes that it comes after
	StateFailed      State = "Failed"      // an operation has failed, and is retried
	StateAbsent      State = "Absent"      // not wanted, or left out (see Optional), and none exist
	StateRemoving    State = "Removing"    // not wanted, and some still exist
)

// NodeStatus is the status of the children of one node.
type NodeStatus struct {
	Name     string
	State    State
	Message  string // reason for people; may be empty
	Children int    // number of existing children
	Ready    int    // number of ready children
	Err      error  // a *ChildError, or several; nil unless Failed
	// Unknown reports that the state of the children is not known. An external resource was not read yet, there was an
	// error, or the API server does not serve the kind ([Optional]). [Node.In] then returns the last known state, or nil.
	// Nodes that come after an unknown node keep their children.
	Unknown bool
}

// Report describes the children of one primary at the end of a round.
type Report struct {
	obj    metav1.Object
	nodes  []NodeStatus
	states states
}

// Nodes returns the status of the nodes, in the order of creation.
func (r *Report) Nodes() []NodeStatus { return r.nodes }

// Ready reports whether all wanted children exist, are up to date and ready, and no others are left.
func (r *Report) Ready() bool { return len(r.in(StateReady, StateAbsent)) == len(r.nodes) }

// conditionDependents is the type of the condition that summarizes the nodes. It is False if a node has failed, True if
// all are Ready or Absent, and otherwise Unknown.
const conditionDependents = "Dependents"

// Conditions returns the conditions for the status: Dependents, and Reconciling during work. The caller may add other
// conditions before it writes the set into the status. The condition Ready is computed from all of them.
func (r *Report) Conditions() *conditions.Set {
	if r.obj == nil { // a zero Report
		return conditions.Of(&metav1.ObjectMeta{})
	}
	set := conditions.Of(r.obj)
	failed, waiting := r.in(StateFailed), r.in(StateProgressing, StateWaiting, StateRemoving)
	var leftOut []string
	for _, n := range r.nodes {
		if n.State == StateAbsent && n.Message != "" {
			leftOut = append(leftOut, n.Name+": "+n.Message)
		}
	}
	switch {
	case len(failed) > 0:
		set.False(conditionDependents, "Failed", "%s", strings.Join(failed, "; "))
	case len(waiting) > 0:
		set.Unknown(conditionDependents, "Waiting", "%s", strings.Join(append(waiting, leftOut...), "; "))
	default:
		set.True(conditionDependents, "Ready", "%s", strings.Join(leftOut, "; "))
	}
	return set
}

// Into writes Conditions into the conditions of a status.
func (r *Report) Into(conditions *[]metav1.Condition) {
	if conditions != nil {
		r.Conditions().Into(conditions)
	}
}

// in describes the nodes that are in one of the states.
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

// In returns the child of a node in a report, for the function of [Graph.Status]. It is nil while the child does not
// exist, and may be nil while it is unknown ([NodeStatus].Unknown). It is READ-ONLY.
func (n *Node[C]) In(r *Report) *C {
	for _, c := range n.AllIn(r) {
		return c
	}
	return nil
}

// AllIn returns the children of a node in a report. They are READ-ONLY.
func (n *Node[C]) AllIn(r *Report) []*C {
	if r == nil {
		return nil
	}
	return childrenOf(r.states, n)
}
