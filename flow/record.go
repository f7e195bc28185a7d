package flow

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"
)

// fiber is a Fiber without its packet type: what the engine keeps of it. A parked one is this record, its parking if
// it waits for more than a time, and what refers to it.
//
// Who may write a field is told by its group: progress has a lock of its own; the last group is guarded by Engine.mu;
// what is marked (owner) belongs to the worker that runs the fiber, and to nobody while it is parked. The rest is set
// before the fiber runs.
type fiber struct {
	e        *Engine
	flow     *bound
	self     any // *Fiber[P]
	key      string
	part     *part
	x        atomic.Pointer[extra]
	join     *join // the fork that it is a child of
	onEnd    func(Result)
	park     *parking // (owner) what it waits for beyond a time
	wake     int64    // (owner) when a delay or retry is over
	progress progress
	resume   int32 // (owner) the step to go on with after a delay

	entering bool // (owner) the step is entered, not repeated
	reported bool // by who started it, if it fails

	// Guarded by Engine.mu. The worker that runs the fiber may read begun and tokens without it, since nobody else
	// writes them.
	state      Status
	why        reason // why it is parked
	poke       pokes  // what has happened since it was last looked at
	sealed     bool   // its end is decided
	begun      bool   // it has passed the gate
	tokens     bool   // the step has made a token
	seq        uint32 // number of the suspension or await; tokens and wakers of another one are stale
	worker     int32  // the worker that runs it, plus one
	heapAt     int32  // its place among the timers, -1 none
	prev, next *fiber // live fibers
	qnext      *fiber // ready fibers of the part
	epoch      uint64
	id         uint64
}

// extra is what most parked fibers do without.
type extra struct {
	pred, succ *fiber // before and after it at the gate
	cause      error  // of its cancellation; set before progress.ending
	leave      error  // what that is to be; set before progress.ending
	err        error  // how it ended
	value      any    // given by Token.Resume; guarded by Engine.mu
	resumeErr  error  // given by Token.Fail; guarded by Engine.mu
	tokenSeq   uint32
	childIndex int32
	done       chan struct{}
	providers  []Provider
	durable    *durable
	trace      *traced // with a tracer only
	back       []back  // (owner) where detours return to
	deadline   int64   // (owner) of the fiber
	token      string
	checkpoint json.RawMessage
	values     context.Context //nolint:containedctx // only its values
	childName  string
	notes      *notes // of the trouble of its step; written by the worker, under Engine.mu
}

// back is a step that was left for a detour, to be returned to.
type back struct {
	pc, attempt int32
	entered     int64
}

// parking is what a parked fiber waits for beyond a time.
type parking struct {
	then, orElse int32
	waits        []waiting
	backstop     time.Duration // between live checks, 0 none
	events       bool          // the live check is a backstop for events, not the only look
	checkAt      int64         // the next live check
	timeoutAt    int64         // 0 none
	fork         *join
}

// waiting is a wait that is watched.
type waiting struct {
	wait Wait
	stop func()
}

// join is a fork under way. Guarded by Engine.mu.
type join struct {
	parent *fiber
	path   string
	depth  int
	mode   forkMode
	todo   []Child  // not yet started
	kids   []*fiber // by index; nil before the start and after the end
	alive  int
	done   int // children completed
	errs   []childError
	over   bool // no more children are started
	late   bool // given up because of a deadline
}

type childError struct {
	index int
	err   error
}

// reason is why a fiber is parked.
type reason uint8

const (
	whyNone reason = iota
	whyGate
	whyDelay
	whyRetry
	whySuspend
	whyAwait
	whyFork
	whyLoad
)

var reasonNames = [...]string{"", "gate", "delay", "retry", "suspend", "await", "fork", "load"}

func (r reason) String() string { return reasonNames[r] }

// pokes are reasons to look at a parked fiber.
type pokes uint8

const (
	pokeTimer pokes = 1 << iota
	pokeEvent
	pokeToken
	pokeJoin
	pokeGate
)

// ext returns the extra record, making it if need be.
func (f *fiber) ext() *extra {
	for {
		if x := f.x.Load(); x != nil {
			return x
		}
		f.x.CompareAndSwap(nil, &extra{})
	}
}

// durable is what the fiber remembers of its positions; nil if it has none.
func (f *fiber) durable() *durable {
	if x := f.x.Load(); x != nil {
		return x.durable
	}
	return nil
}

// pred is the fiber before it at the gate. Under Engine.mu.
func (f *fiber) pred() *fiber {
	if x := f.x.Load(); x != nil {
		return x.pred
	}
	return nil
}

// parent is the fiber that forked it.
func (f *fiber) parent() *fiber {
	if f.join == nil {
		return nil
	}
	return f.join.parent
}

func (f *fiber) root() *fiber {
	for f.join != nil {
		f = f.join.parent
	}
	return f
}

// step is the step that the fiber is at.
func (f *fiber) step() *step { return &f.flow.def.steps[f.progress.pc] }

// path is where the fiber is, from the root flow on.
func (f *fiber) path() string { return f.pathAt(f.progress.pc) }

// whereabouts is path for others than the worker that runs the fiber.
func (f *fiber) whereabouts() string { return f.pathAt(f.progress.at()) }

func (f *fiber) pathAt(pc int32) string {
	p := f.flow.def.name
	if f.join != nil {
		p = f.join.path + "[" + f.x.Load().childName + "]"
	}
	if pc < 0 || int(pc) >= len(f.flow.def.steps) {
		return p
	}
	return p + "/" + f.flow.def.steps[pc].path
}
