package flow

import (
	"context"
	"time"
)

// Next is the result of a step. It says what the fiber does next. The methods of Fiber make it; the zero value fails
// the step.
type Next struct {
	op     op
	forked *forkSpec
	d      time.Duration
	then   string // the step to go to; "" is the following one
	orElse string // the step to go to after an error
	err    error
	token  Token
	action func(context.Context) error
	waits  []Wait
}

// Then makes the fiber go to step, instead of the following step, when the wait is over.
func (n Next) Then(step string) Next { n.then = step; return n }

// Else makes the fiber go to step, instead of failing, when this step fails or its wait ends with an error, such as a
// timeout, a failed child or Token.Fail. Fiber.Err returns that error in step.
func (n Next) Else(step string) Next { n.orElse = step; return n }

// Child is one named branch of a fork. [Flow.Child] makes it.
type Child struct {
	name string
	def  *def
	make func() *fiber
}

// undoes reports whether the branch has a step to undo.
func (c Child) undoes() bool { return c.def != nil && c.def.undo != nil && len(c.def.undo.steps) > 0 }

// forkSpec is a fork that has not begun.
type forkSpec struct {
	children []Child
	mode     forkMode
	fault    string // what is invalid in the options
}
