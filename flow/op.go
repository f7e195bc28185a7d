package flow

// op is the outcome of a run of a step: what the step returned, or why it did not return.
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
	// These are not returned by a step.
	opPanic
	opCancel
	opSkip
)

var opNames = [...]string{
	"", "next", "goto", "delay", "retry", "suspend", "await", "fork", "end", "fail", "yield",
	"panic", "cancel", "skip",
}

func (o op) String() string { return opNames[o] }
