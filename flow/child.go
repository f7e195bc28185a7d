package flow

import "fmt"

// Child is one named branch of a fork. Flow.Child makes it.
type Child struct {
	name string
	def  *def
	make func() *fiber
}

// undoes says whether the branch has something to undo.
func (c Child) undoes() bool { return c.def != nil && c.def.undo != nil && len(c.def.undo.steps) > 0 }

// forkMode is how a fork runs its children and when it is over.
type forkMode struct {
	limit    int
	quorum   int  // 0: all
	some     bool // quorum was given
	failFast bool
}

// fault says what is wrong with a mode.
func (m forkMode) fault() string {
	switch {
	case m.limit < 0:
		return fmt.Sprintf("has a negative limit, %d", m.limit)
	case m.some && m.quorum < 1:
		return fmt.Sprintf("has a quorum of %d, below 1", m.quorum)
	}
	return ""
}

// forkSpec is a fork about to begin.
type forkSpec struct {
	children []Child
	mode     forkMode
	fault    string // what is wrong with its options
}
