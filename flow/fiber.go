package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Fiber is one run of a flow, as its steps see it. Its methods are for the step that it was given to, while that step runs;
// what others may hold is its Handle.
type Fiber[P any] struct {
	fiber
	// Packet is what the flow works on; the steps of the fiber own it one after the other.
	Packet *P
}

func newFiber[P any](packet *P) *fiber {
	t := &Fiber[P]{Packet: packet}
	t.self = t
	t.heapAt = -1
	return &t.fiber
}

// fiber is a Fiber without its packet type. A parked one is this record, its park if it has waits, and what refers to it.
//
// state, why, poke, seq, links and timers are guarded by Engine.mu; what is marked (owner) belongs to the worker that runs the
// fiber and to nobody while it is parked; what is marked (mu) is shared with those who look.
type fiber struct {
	e    *Engine
	flow *bound
	self any // *Fiber[P]
	key  string
	part *part
	x    atomic.Pointer[extra]
	park *parking // (owner) what it waits for beyond a time

	prev, next *fiber // live fibers
	qnext      *fiber // ready fibers of the part
	join       *join  // of the fork that it is a child of
	onEnd      func(Result)
	cancel     context.CancelCauseFunc // (mu) of the context of the running step
	epoch      uint64
	id         uint64
	began      int64 // when it was started first, on the engine's time
	entered    int64 // (mu) when its step was entered first
	since      int64 // (mu) when its state changed last
	wake       int64 // (owner) when a delay or retry is over

	mu      sync.Mutex // leaf lock
	heapAt  int32
	pc      int32 // (mu) the step it is at
	resume  int32 // (owner) the step to go on with after a delay
	attempt int32 // (mu) runs of the step before this one
	seq     uint32
	worker  int32 // the worker that runs it, plus one

	cancelled atomic.Bool
	state     Status
	why       reason // why it is parked
	poke      pokes  // what has happened since it was last looked at
	sealed    bool   // its end is decided
	begun     bool   // it has passed the gate
	entering  bool   // (owner) the step is entered, not repeated
	tokens    bool   // (owner) the step has made a token
	trail     trail  // (mu)
}

// extra is what most parked fibers do without.
type extra struct {
	pred, succ *fiber // before and after it at the gate
	grace      time.Duration
	cause      error // of its cancellation
	err        error // how it ended
	lastErr    error // what led to an Else or OnError step
	value      any   // given by Token.Resume
	resumeErr  error // given by Token.Fail
	tokenSeq   uint32
	done       chan struct{}
	providers  []Provider
	durable    *durable
	trace      *tracing // with a tracer only
	back       []back   // where detours return to
	deadline   int64    // of the fiber
	token      string
	checkpoint json.RawMessage
	values     context.Context //nolint:containedctx // only its values
	childName  string
	childIndex int
}

type back struct {
	pc, attempt int32
	entered     int64
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

func (f *fiber) root() *fiber {
	for f.join != nil {
		f = f.join.parent
	}
	return f
}

func (f *fiber) step() *step { return &f.flow.def.steps[f.pc] }

// path is where the fiber is, from the root flow on.
func (f *fiber) path() string { return f.pathAt(f.pc) }

// whereabouts is path for others than the worker that runs the fiber.
func (f *fiber) whereabouts() string {
	f.mu.Lock()
	pc := f.pc
	f.mu.Unlock()
	return f.pathAt(pc)
}

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

// Key returns the key that the fiber, or the fiber that forked it, was started with.
func (f *fiber) Key() string { return f.root().key }

// Epoch returns the number of the fiber at the gate: higher than that of any fiber started before it. Children share it.
func (f *fiber) Epoch() uint64 { return f.root().epoch }

// Attempt returns how often this step has run before in a row: 0 the first time, more after Retry, a failed try or a detour.
func (f *fiber) Attempt() int { return int(f.attempt) }

// Durable says whether the fiber, or the one that it was forked from, has Positions: after a crash its steps may run again.
func (f *fiber) Durable() bool {
	x := f.root().x.Load()
	return x != nil && x.durable != nil
}

// Path returns the path of the step, as in "bring-up/managed-servers[3]/wait-ready".
func (f *fiber) Path() string { return f.path() }

// Entered returns when the step was entered first, also before a restart.
func (f *fiber) Entered() time.Time { return f.e.wall(f.entered) }

// Began returns when the fiber was started first, also before a restart.
func (f *fiber) Began() time.Time { return f.e.wall(f.began) }

// Now returns the engine's time.
func (f *fiber) Now() time.Time { return f.e.clock.Now() }

// Handle returns what others may hold of the fiber.
func (f *fiber) Handle() Handle { return Handle{f} }

// Err returns the error that brought the fiber to this step through Else or OnError; nil otherwise. After a restart it is a *SavedError.
func (f *fiber) Err() error {
	if x := f.x.Load(); x != nil {
		return x.lastErr
	}
	return nil
}

// Value returns what the last resume of the fiber was given, if it is a T. It is not kept over a restart: what later steps need belongs into
// the checkpoint.
func Value[T, P any](f *Fiber[P]) (T, bool) {
	var zero T
	x := f.x.Load()
	if x == nil {
		return zero, false
	}
	v, ok := x.value.(T)
	return v, ok
}

// SetCheckpoint keeps v, as JSON, in the position of the fiber. It is written with the next save.
func (f *fiber) SetCheckpoint(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot set checkpoint: %w", err)
	}
	f.ext().checkpoint = data
	return nil
}

// Checkpoint decodes what SetCheckpoint kept, before a restart or since, into v; false if there is none.
func (f *fiber) Checkpoint(v any) (bool, error) {
	x := f.x.Load()
	if x == nil || len(x.checkpoint) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(x.checkpoint, v); err != nil {
		return false, fmt.Errorf("cannot read checkpoint: %w", err)
	}
	return true, nil
}

// Next goes on with the following step; after the last one the fiber is completed.
func (f *fiber) Next() Next { return Next{op: opNext} }

// Goto goes on with another step, named as seen from this one. A Detour comes back.
func (f *fiber) Goto(step string) Next { return Next{op: opGoto, then: step} }

// Delay parks the fiber for d, then goes on.
func (f *fiber) Delay(d time.Duration) Next { return Next{op: opDelay, d: d} }

// Retry parks the fiber for d, then runs the same step again. Backoff.Delay(f.Attempt()+1) is a good d.
func (f *fiber) Retry(d time.Duration) Next { return Next{op: opRetry, d: d} }

// End completes the fiber.
func (f *fiber) End() Next { return Next{op: opEnd} }

// Fail fails the step: it is tried again if its Retry says so, else its Else or OnError step follows, else the fiber fails
// with a *StepError. A nil err is an error too.
func (f *fiber) Fail(err error) Next {
	if err == nil {
		err = fmt.Errorf("step failed without an error")
	}
	return Next{op: opFail, err: err}
}

// Yield lets others run, then goes on.
func (f *fiber) Yield() Next { return Next{op: opYield} }

// Await parks the fiber until one of the waits holds; with none it parks until its deadline or cancellation. A failed Check or
// a Timeout fails the step.
func (f *fiber) Await(waits ...Wait) Next { return Next{op: opAwait, waits: waits} }

// Fork runs children, each a fiber of its own, and goes on when they have ended. Options are Limit, FailFast, Quorum, First; others are
// those of a step, and fail it with ErrInvalid.
func (f *fiber) Fork(children []Child, opts ...Option) Next {
	s := settle(opts)
	spec := &forkSpec{children: children, mode: s.fork, fault: s.fork.fault()}
	if s.stepOnly() {
		spec.fault = "has an option of steps"
	}
	return Next{op: opFork, forked: spec}
}

// Suspend parks the fiber until t, which the same step made with Token, is resumed; that may have happened already. action, if
// given, runs once the step has returned; its context lives until the fiber is resumed, and its error or panic fails the step.
func (f *fiber) Suspend(t Token, action ...func(ctx context.Context) error) Next {
	n := Next{op: opSuspend, token: t}
	if len(action) > 0 {
		n.action = func(ctx context.Context) error {
			for _, a := range action {
				if err := a(ctx); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return n
}
