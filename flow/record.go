package flow

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"
)

// fiber is a Fiber without its packet type. A parked fiber consists of this record, its extra and parking records if it
// has them, and the references to it.
//
// The comments of the fields say which goroutine may write them. progress has its own lock. Engine.mu guards the last
// group. Fields marked (owner) belong to the worker that runs the fiber, and no goroutine writes them while it is
// parked. All other fields are set before the fiber runs.
type fiber struct {
	e        *Engine
	flow     *bound
	self     any // *Fiber[P]
	key      string
	part     *part
	x        atomic.Pointer[extra]
	join     *join // the fork that started the fiber; nil for a root fiber
	onEnd    func(Result)
	park     *parking // (owner) what the fiber waits for, besides a time
	wake     int64    // (owner) when a delay or retry is over
	progress progress
	resume   int32 // (owner) the step to enter first, or after a delay

	entering bool // (owner) the step is entered, not repeated
	reported bool // from StartOptions: the caller reports a failure

	// Guarded by Engine.mu. Only the worker that runs the fiber writes begun and tokens, so it may read them without
	// the lock.
	state      Status
	why        reason // why the fiber is parked
	poke       pokes  // events since the fiber was last picked up
	sealed     bool   // the outcome is decided
	begun      bool   // the fiber has passed the gate
	tokens     bool   // the step has made a token
	seq        uint32 // number of the current suspension or await; makes older tokens and wakers stale
	worker     int32  // index of the worker that runs the fiber, plus one; 0 if none
	heapAt     int32  // index in the heap of timers, -1 if absent
	prev, next *fiber // ring of live fibers
	qnext      *fiber // queue of ready fibers of the part
	epoch      uint64
	id         uint64
}

// extra has the fields that most parked fibers do not need.
type extra struct {
	pred, succ *fiber // the previous and the next fiber of the key at the gate
	cause      error  // of the cancellation; set before isCancelled in progress.ending
	leave      error  // of the interruption; set before isLeaving in progress.ending
	err        error  // of the ended fiber
	value      any    // from Token.Resume; guarded by Engine.mu
	resumeErr  error  // from Token.Fail; guarded by Engine.mu
	tokenSeq   uint32
	childIndex int32
	done       chan struct{}
	providers  []Provider
	durable    *durable
	trace      *traced // nil without a tracer
	back       []back  // (owner) the steps that detours return to
	deadline   int64   // (owner) of the fiber
	token      string
	checkpoint json.RawMessage
	values     context.Context //nolint:containedctx // only its values are used
	childName  string
	notes      *notes // about the current step; written by the worker, under Engine.mu
}

// back is a step that a detour returns to.
type back struct {
	pc, attempt int32
	entered     int64
}

// parking is what a parked fiber waits for, besides a time.
type parking struct {
	then, orElse int32
	waits        []waiting
	backstop     time.Duration // interval between live checks, 0 if none
	events       bool          // some wait has events; the live check is only a backstop for them
	checkAt      int64         // time of the next live check
	timeoutAt    int64         // 0 if none
	fork         *join
}

// waiting is a wait that is being watched.
type waiting struct {
	wait Wait
	stop func()
}

// join is a running fork. Guarded by Engine.mu.
type join struct {
	parent *fiber
	path   string
	depth  int
	mode   forkMode
	todo   []Child  // children that have not started
	kids   []*fiber // by index; nil before the child starts and after it ends
	alive  int
	done   int // number of completed children
	errs   []childError
	over   bool // no more children start
	late   bool // the fork was abandoned because of a deadline
}

type childError struct {
	index int
	err   error
}

// reason says why a fiber is parked.
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

// pokes are the events that make a worker pick up a parked fiber.
type pokes uint8

const (
	pokeTimer pokes = 1 << iota
	pokeEvent
	pokeToken
	pokeJoin
	pokeGate
)

// ext returns the extra record and makes it if needed.
func (f *fiber) ext() *extra {
	for {
		if x := f.x.Load(); x != nil {
			return x
		}
		f.x.CompareAndSwap(nil, &extra{})
	}
}

// durable returns the durable state of the fiber, nil without Positions.
func (f *fiber) durable() *durable {
	if x := f.x.Load(); x != nil {
		return x.durable
	}
	return nil
}

// pred returns the previous fiber at the gate. The caller holds Engine.mu.
func (f *fiber) pred() *fiber {
	if x := f.x.Load(); x != nil {
		return x.pred
	}
	return nil
}

// parent returns the fiber that forked f, or nil.
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

// step returns the current step.
func (f *fiber) step() *step { return &f.flow.def.steps[f.progress.pc] }

// path returns the path of the current step, from the root flow on.
func (f *fiber) path() string { return f.pathAt(f.progress.pc) }

// whereabouts is path for goroutines other than the worker that runs the fiber.
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
