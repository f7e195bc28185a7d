package dependent

import (
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
)

// state is what a round knows about the children of one node.
type state struct {
	*node
	decided  bool // wanted is valid
	wanted   bool
	asked    bool // wants is complete, and the node is not blocked
	err      error
	wants    []*want
	children []client.Object // of the primary, of this kind; other nodes may have some of them
	present  int             // number of those of this node that do not count as deleted
	blocked  []string        // names of the nodes that it waits for
	hidden   bool            // its children depend on a node whose state is unknown
	lacks    string          // why the kind of an optional node cannot be used; "": it can
	outside  *outside        // the external resource; nil: not read yet, or none
	slot     bool            // the primary has a slot for an external resource
	status   NodeStatus
	until    time.Time // when to look again
}

// want is one desired child.
type want struct {
	key    client.Key
	obj    client.Object  // the desired object, with marks
	fields map[string]any // its content; nil until first used
	sum    sum
	is     client.Object // the current object; nil if there is none
	known  *child        // the entry of the current object; nil if there is none
	ready  bool
	why    string // why it is not ready
	unread bool   // the cache could not be read
	err    error
	until  time.Time
}

// readOutside reads what is known about the external resource of a node.
func (s *state) readOutside(known *remembered, primary client.Object) {
	s.outside = known.outsides[s.index]
	s.slot = slices.Contains(alloc.Held(primary), s.name)
}

// unknown reports whether this round does not know the state of the children of a node. They may exist.
func (s *state) unknown() bool {
	if s.external != nil {
		return s.outside == nil || s.outside.failed
	}
	return s.err != nil || s.hidden || s.leftOut() || slices.ContainsFunc(s.wants, func(w *want) bool { return w.unread })
}

// leftOut reports whether the node is wanted, and its kind cannot be used.
func (s *state) leftOut() bool { return s.wanted && s.lacks != "" }

// unwanted reports whether it is decided that the node has no children.
func (s *state) unwanted() bool { return s.decided && !s.wanted }

// allReady reports whether the nodes that come after this one may begin.
func (s *state) allReady() bool {
	if s.err != nil || !s.wanted || !s.asked {
		return false
	}
	if s.external != nil {
		return s.status.State == StateReady
	}
	return !slices.ContainsFunc(s.wants, func(w *want) bool { return !w.ready })
}

// remaining returns the children that do not count as deleted.
func (s *state) remaining() (all []client.Object) {
	for _, obj := range s.children {
		if !s.isDeleted(obj) {
			all = append(all, obj)
		}
	}
	return all
}
