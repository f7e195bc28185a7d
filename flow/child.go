package flow

import "fmt"

// Child is one named branch of a fork. [Flow.Child] makes it.
type Child struct {
	name string
	def  *def
	make func() *fiber
}

// undoes reports whether the branch has a step to undo.
func (c Child) undoes() bool { return c.def != nil && c.def.undo != nil && len(c.def.undo.steps) > 0 }

// forkMode says how a fork runs its children and when the fork ends.
type forkMode struct {
	limit    int
	quorum   int  // 0: all
	some     bool // quorum was given
	failFast bool
}

// fault returns what is invalid in the mode, or "".
func (m forkMode) fault() string {
	switch {
	case m.limit < 0:
		return fmt.Sprintf("has a negative limit, %d", m.limit)
	case m.some && m.quorum < 1:
		return fmt.Sprintf("has a quorum of %d, below 1", m.quorum)
	}
	return ""
}

// forkSpec is a fork that has not begun.
type forkSpec struct {
	children []Child
	mode     forkMode
	fault    string // what is invalid in the options
}
