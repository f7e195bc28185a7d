package flow

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// Fiber is one run of a flow, as its steps see it. Its methods are for the step that it was given to, while that step
// runs; what others may hold is its Handle.
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

// Key returns the key that the fiber, or the fiber that forked it, was started with.
func (f *fiber) Key() string { return f.root().key }

// Epoch returns the number of the fiber at the gate: higher than that of any fiber started before it. Children share
// it.
func (f *fiber) Epoch() uint64 { return f.root().epoch }

// Attempt returns how often this step has run before in a row: 0 the first time, more after Retry, a failed try or a
// detour.
func (f *fiber) Attempt() int { return int(f.progress.attempt) }

// Durable says whether the fiber, or the one that it was forked from, has Positions: after a crash its steps may run
// again.
func (f *fiber) Durable() bool { return f.root().durable() != nil }

// Path returns the path of the step, as in "bring-up/managed-servers[3]/wait-ready".
func (f *fiber) Path() string { return f.path() }

// Entered returns when the step was entered first, also before a restart.
func (f *fiber) Entered() time.Time { return f.e.wall(f.progress.entered) }

// Began returns when the fiber was started first, also before a restart.
func (f *fiber) Began() time.Time { return f.e.wall(f.progress.began) }

// Now returns the engine's time.
func (f *fiber) Now() time.Time { return f.e.clock.Now() }

// Handle returns what others may hold of the fiber.
func (f *fiber) Handle() Handle { return Handle{f} }

// Err returns the error that brought the fiber to this step through Else or OnError; nil otherwise. After a restart it
// is a *SavedError.
func (f *fiber) Err() error {
	if x := f.x.Load(); x != nil {
		return x.led()
	}
	return nil
}

// Value returns what the last resume of the fiber was given, if it is a T. It is not kept over a restart: what later
// steps need belongs into the checkpoint.
func Value[T, P any](f *Fiber[P]) (T, bool) {
	x := f.x.Load()
	if x == nil {
		var zero T
		return zero, false
	}
	f.e.mu.Lock() // a token of the running step may be resumed at any time
	given := x.value
	f.e.mu.Unlock()
	v, ok := given.(T)
	return v, ok
}

// Use returns the nearest T: of the fiber, of its flow, of the fibers it was forked from and their flows, of the
// engine.
func Use[T, P any](f *Fiber[P]) (T, bool) {
	for c := &f.fiber; c != nil; c = c.parent() {
		if x := c.x.Load(); x != nil {
			if v, ok := find[T](x.providers); ok {
				return v, true
			}
		}
		if v, ok := find[T](c.flow.def.providers); ok {
			return v, true
		}
	}
	return find[T](f.e.opt.Providers)
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

// Fail fails the step. If its Retry says so, it is tried again. Otherwise its Else or OnError step follows, and
// without one the fiber fails with a *StepError. A nil err is an error too.
func (f *fiber) Fail(err error) Next {
	if err == nil {
		err = fmt.Errorf("step failed without an error")
	}
	return Next{op: opFail, err: err}
}

// Yield lets others run, then goes on.
func (f *fiber) Yield() Next { return Next{op: opYield} }

// Await parks the fiber until one of the waits holds; with none it parks until its deadline or cancellation. A failed
// Check or a Timeout fails the step.
func (f *fiber) Await(waits ...Wait) Next { return Next{op: opAwait, waits: waits} }

// Fork runs children, each a fiber of its own, and goes on when they have ended. Options are Limit, FailFast, Quorum,
// First; others are those of a step, and fail it with ErrInvalid.
func (f *fiber) Fork(children []Child, opts ...Option) Next {
	s := settle(opts)
	spec := &forkSpec{children: children, mode: s.fork, fault: s.fork.fault()}
	if s.stepOnly() {
		spec.fault = "has an option of steps"
	}
	return Next{op: opFork, forked: spec}
}

// Suspend parks the fiber until t, which the same step made with Token, is resumed; that may have happened already.
// action, if given, runs once the step has returned; its context lives until the fiber is resumed, and its error or
// panic fails the step.
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

// runToken identifies the run, across restarts if it is durable.
func (f *fiber) runToken() string {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	x := f.ext()
	if x.token == "" {
		x.token = rand.Text()
	}
	return x.token
}

// IdempotencyKey returns a key for requests outside that this step makes: the same on each attempt and, for a durable
// fiber, after a restart; another one for each step, child and run.
func (f *fiber) IdempotencyKey() string { return f.root().runToken() + "/" + f.path() }
