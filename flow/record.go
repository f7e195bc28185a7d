package flow

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/why"
)

// fiber is a Fiber without its packet type and its API. A parked fiber consists of this record, its extra and parking
// records if it has them, and the references to it.
//
// The comments of the fields say which goroutine may write them. progress has its own lock. core.mu guards the last
// group. Fields marked (owner) belong to the worker that runs the fiber, and no goroutine writes them while it is
// parked. All other fields are set before the fiber runs.
type fiber struct {
	e        *core
	flow     *bound
	self     any // *Fiber[P]
	key      string
	subgroup *subgroup
	x        atomic.Pointer[extra]
	join     *join // the fork that started the fiber; nil for a root fiber
	onEnd    func(Result)
	park     *parking // (owner) what the fiber waits for, besides a time
	wake     int64    // (owner) when a delay or retry is over
	progress progress
	resume   int32 // (owner) the step to enter first, or after a delay

	entering bool // (owner) the step is entered, not repeated
	reported bool // from StartOptions: the caller reports a failure

	// Guarded by core.mu. The parts of the engine own their entries: scheduler, liveSet and gates. Only the worker that
	// runs the fiber writes begun and tokens, so it may read them without the lock.
	state      Status // scheduler
	why        reason // scheduler: why the fiber is parked
	poke       pokes  // scheduler: events since the fiber was last picked up
	sealed     bool   // the outcome is decided
	begun      bool   // the fiber has passed the gate
	tokens     bool   // the step has made a token
	seq        uint32 // number of the current suspension or await; makes older tokens and wakers stale
	worker     int32  // scheduler: index of the worker that runs the fiber, plus one; 0 if none
	heapAt     int32  // timers: index in the heap, -1 if absent
	prev, next *fiber // liveSet: ring of live fibers
	qnext      *fiber // readyQueue: queue of ready fibers of the subgroup
	epoch      uint64 // gates
	id         uint64 // liveSet
	value      any    // from Token.Resume or an Await
}

// Handle is a reference to a fiber for code other than its steps. The zero Handle refers to no fiber and counts as
// ended. Handles are comparable and safe for concurrent use.
type Handle struct{ f *fiber }

// Result is the outcome of a fiber, as passed to OnEnd. OnEnd runs once for every fiber, on a worker, before the next
// fiber of the key may run. The callback of a fiber that never began may run while another fiber of its key runs.
type Result struct {
	Handle Handle
	Status Status // Completed, Failed, Cancelled or Moved
	Err    error  // nil if and only if Completed
	Begun  bool   // false if the fiber was cancelled before any of its code ran
}

// extra has the fields that most parked fibers do not need.
type extra struct {
	gate  gateEntry
	cause error // of the cancellation; set before isCancelled in progress.ending
	// interruption is the cause of an Interrupt. It is set before isInterrupted in progress.ending.
	interruption error
	err          error // of the ended fiber
	resumeErr    error // from Token.Fail; guarded by core.mu
	tokenSeq     uint32
	childIndex   int32
	done         chan struct{}
	providers    []Provider
	journal      *journal // nil without Positions
	trace        *traced  // nil without a tracer
	back         []back   // (owner) the steps that detours return to
	deadline     int64    // (owner) of the fiber
	token        string
	checkpoint   json.RawMessage
	values       context.Context //nolint:containedctx // only its values are used
	childName    string
	notes        *notes // about the current step; written by the worker, under core.mu
}

// gateEntry has the neighbours of a fiber in the chain of its key.
type gateEntry struct{ pred, succ *fiber }

// notes explain the current step of a fiber. Only the worker that runs the fiber writes them, under core.mu.
type notes struct {
	causes []why.Cause // from Because
	err    error       // of the last run, which is retried
	since  int64       // when the step first failed
	led    error       // the error that led to this step through Else or OnError
}

// journal is the saved position of a fiber with Positions, for the worker that runs the fiber. journal.go has its
// methods. lifecycle calls queued and handOver under core.mu, while the fiber waits at the gate.
type journal struct {
	f          *fiber
	env        *journalEnv
	store      Positions
	generation int64
	timeout    time.Duration
	fresh      bool     // does not resume, because another fiber of the key was alive
	kept       bool     // the saved position is kept for a later fiber to resume
	saved      bool     // last is valid
	dirty      bool     // the store may have a position for the key
	tries      int32    // failed loads, or failed saves before a step with an Undo
	last       Position // the position saved last
	cut        cutWait
	reached    int32 // the furthest step that this run or an earlier run of the key has reached
	covered    int32 // the furthest step that the stored position covers
}

// journalEnv is what the journals of an engine share.
type journalEnv struct {
	log  *slog.Logger
	lost *atomic.Uint64 // counts positions that could not be saved
	host canceller
}

// canceller cancels a fiber whose step is not running.
type canceller interface{ cancel(f *fiber, cause error) }

// cutWait is a wait that a restart interrupted. The step that returned the wait runs again, and waits until the
// original deadline.
type cutWait struct {
	pc       int32 // the step, none if there is no such wait
	orElse   int32
	deadline int64 // of the await, 0 none
}

var noWait = cutWait{pc: none, orElse: none}

// back is a step that a detour returns to.
type back struct {
	pc, attempt int32
	entered     int64
}

// parking is what a parked fiber waits for, besides a time.
type parking struct {
	then, orElse int32
	awaiting
	fork *join
}

// awaiting is the waits of a fiber. await.go has its methods. It belongs to the worker that runs the fiber, and has no
// lock.
type awaiting struct {
	waits     []waiting
	backstop  time.Duration // interval between live checks, 0 if none
	events    bool          // some wait has events; the live check is only a backstop for them
	checkAt   int64         // time of the next live check
	timeoutAt int64         // 0 if none
}

// waiting is a wait that is being watched.
type waiting struct {
	wait Wait
	stop func()
}

// join is a running fork. Guarded by core.mu.
type join struct {
	parent *fiber
	path   string
	depth  int
	todo   []Child  // by index; the zero Child after the child has started
	kids   []*fiber // by index; nil before the child starts and after it ends
	err    error    // the outcome, once the last child has ended
	forkPolicy
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

// journal returns the journal of the fiber, nil without Positions.
func (f *fiber) journal() *journal {
	if x := f.x.Load(); x != nil {
		return x.journal
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

// tracing returns the tracing state of the fiber, nil without a tracer.
func (f *fiber) tracing() *traced {
	if x := f.x.Load(); x != nil {
		return x.trace
	}
	return nil
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
