package flow

import (
	"context"
	"time"
)

// Next is what a step returns: what happens next. The methods of Fiber make it; the zero value fails the step.
type Next struct {
	op     op
	forked *forkSpec
	d      time.Duration
	then   string // where to go on; "" is the next step
	orElse string // where to go on after an error
	err    error
	token  Token
	action func(context.Context) error
	waits  []Wait
}

// Then makes the fiber go on at another step than the following one, once the wait is over.
func (n Next) Then(step string) Next { n.then = step; return n }

// Else makes the fiber go on at step, instead of failing, when the step fails or its wait ends with an error (a
// timeout, a failed child, Token.Fail). That step finds the error in Fiber.Err.
func (n Next) Else(step string) Next { n.orElse = step; return n }

type op uint8

const (
	opNone op = iota
	opNext
	opGoto
	opDelay
	opRetry
	opSuspend
	opAwait
	opFork
	opEnd
	opFail
	opYield
	// What the trail knows besides the above.
	opPanic
	opCancel
	opSkip
)

var opNames = [...]string{
	"", "next", "goto", "delay", "retry", "suspend", "await", "fork", "end", "fail", "yield",
	"panic", "cancel", "skip",
}

func (o op) String() string { return opNames[o] }
