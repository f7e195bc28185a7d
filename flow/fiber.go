package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/why"
)

// StepFunc is the code of a step. It may block briefly. A long wait is returned (Delay, Retry, Suspend, Await, Fork),
// so that it holds no worker. The methods of f make the result. ctx ends when the fiber parks, and when it is
// cancelled, with the cause. A step must not keep ctx.
type StepFunc[P any] func(ctx context.Context, f *Fiber[P]) Next

// Do returns a step that calls fn, a function without access to the fiber. After a nil error the fiber goes to the
// following step. Any other error fails the step.
func Do[P any](fn func(ctx context.Context, packet *P) error) StepFunc[P] {
	return func(ctx context.Context, f *Fiber[P]) Next {
		if err := fn(ctx, f.Packet); err != nil {
			return f.Fail(err)
		}
		return f.Next()
	}
}

// Fiber is one run of a flow, as its steps see it. Only the running step may call its methods. Other code uses the
// Handle.
type Fiber[P any] struct {
	control
	// Packet is the data of the flow. The running step owns it.
	Packet *P
}

// control is what the running step can ask of its fiber, and the results that it can return. It does not depend on the
// packet. Its methods read and write the fields of the fiber that belong to its worker.
type control struct{ fiber }

func newFiber[P any](packet *P) *fiber {
	t := &Fiber[P]{Packet: packet}
	t.self = t
	t.heapAt = -1
	return &t.fiber
}

// Key returns the key that the fiber, or the root fiber that forked it, was started with.
func (f *control) Key() string { return f.root().key }

// Epoch returns the epoch of the fiber, which is higher than that of any fiber started before it. Children have the
// epoch of their root fiber.
func (f *control) Epoch() uint64 { return f.root().epoch }

// Attempt returns how often this step has run before in a row. It is 0 for the first run. Retry, a failed attempt and a
// detour increase it.
func (f *control) Attempt() int { return int(f.progress.attempt) }

// Durable reports whether the fiber, or the root fiber that forked it, has Positions. Steps of a durable fiber may run
// again after a crash.
func (f *control) Durable() bool { return f.root().journal() != nil }

// Path returns the path of the step, as in "bring-up/managed-servers[3]/wait-ready".
func (f *control) Path() string { return f.path() }

// Entered returns when the step was first entered, including before a restart.
func (f *control) Entered() time.Time { return f.e.time.wall(f.progress.entered) }

// Began returns when the fiber was first started, including before a restart.
func (f *control) Began() time.Time { return f.e.time.wall(f.progress.began) }

// Now returns the engine's time.
func (f *control) Now() time.Time { return f.e.time.clock.Now() }

// Handle returns a handle of the fiber for other code.
func (f *control) Handle() Handle { return Handle{&f.fiber} }

// Err returns the error that led to this step through Else or OnError, or nil. After a restart it is a *SavedError.
func (f *control) Err() error { return f.x.Load().led() }

// Value returns the value of the last resume of the fiber, if it is a T. The value does not survive a restart. Use the
// checkpoint for data that later steps need.
func Value[T, P any](f *Fiber[P]) (T, bool) {
	f.e.mu.Lock() // a token of the running step may be resumed concurrently
	given := f.value
	f.e.mu.Unlock()
	v, ok := given.(T)
	return v, ok
}

// Use returns the nearest T. It searches the fiber and its flow, then the fibers that forked it and their flows, then
// the engine.
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
	return find[T](f.e.providers)
}

// SetCheckpoint keeps v, encoded as JSON, in the position of the fiber. The next save writes it.
func (f *control) SetCheckpoint(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot set checkpoint: %w", err)
	}
	f.ext().checkpoint = data
	return nil
}

// Checkpoint decodes the value of SetCheckpoint into v. It returns false if there is none. The value survives a
// restart.
func (f *control) Checkpoint(v any) (bool, error) {
	x := f.x.Load()
	if x == nil || len(x.checkpoint) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(x.checkpoint, v); err != nil {
		return false, fmt.Errorf("cannot read checkpoint: %w", err)
	}
	return true, nil
}

// Next goes to the following step. After the last step the fiber is completed.
func (f *control) Next() Next { return Next{op: opNext} }

// Goto goes to another step, which is named relative to this one. A Detour returns to this step.
func (f *control) Goto(step string) Next { return Next{op: opGoto, then: step} }

// Delay parks the fiber for d, then goes to the following step.
func (f *control) Delay(d time.Duration) Next { return Next{op: opDelay, d: d} }

// Retry parks the fiber for d, then runs the same step again. Backoff.Delay(f.Attempt()+1) is a good d.
func (f *control) Retry(d time.Duration) Next { return Next{op: opRetry, d: d} }

// End completes the fiber.
func (f *control) End() Next { return Next{op: opEnd} }

// Fail fails the step. The engine retries it if its Retry option allows that. Otherwise the fiber goes to the Else or
// OnError step, or fails with a *StepError if there is none. A nil err is also a failure.
func (f *control) Fail(err error) Next {
	if err == nil {
		err = fmt.Errorf("step failed without an error")
	}
	return Next{op: opFail, err: err}
}

// Yield lets other fibers run, then goes to the following step.
func (f *control) Yield() Next { return Next{op: opYield} }

// Await parks the fiber until one of the waits holds. Without waits it parks until a deadline or a cancellation. A
// failed Check or a Timeout fails the step.
func (f *control) Await(waits ...Wait) Next { return Next{op: opAwait, waits: waits} }

// Fork runs children, each as a fiber of its own, and waits until they have ended. The options are Limit, FailFast,
// Quorum and First. Any other option fails the step with ErrInvalid.
func (f *control) Fork(children []Child, opts ...Option) Next {
	s := settingsOf(opts)
	spec := &forkSpec{children: children, mode: s.fork, fault: s.fork.fault()}
	if s.stepOnly() {
		spec.fault = "has an option of steps"
	}
	return Next{op: opFork, forked: spec}
}

// Because records why the fiber is about to wait, for [Handle.Why]. The causes are valid until the fiber leaves the
// step or runs it again.
//
//	f.Because(why.Cause{Type: why.Parked, Message: "no address is free", Advice: "Enlarge the pool."})
//	return f.Await(&pool.Changed)
func (f *control) Because(causes ...why.Cause) {
	annotate(&f.fiber, func(n *notes) { n.causes = append(n.causes, causes...) })
}

// Token returns a token for the suspension that this step is about to return. Other code may resume the token before
// the step returns. The token becomes stale if the step does not suspend on it, or calls Token again.
func (f *control) Token() Token { return newToken(&f.fiber) }

// Suspend parks the fiber until t is resumed. The same step must have made t with Token, and t may already be resumed.
// The actions run after the step has returned. Their context lives until the fiber is resumed. An error or a panic of
// an action fails the step.
func (f *control) Suspend(t Token, action ...func(ctx context.Context) error) Next {
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

// IdempotencyKey returns a key for external requests of this step. It is the same for each attempt and, for a durable
// fiber, after a restart. It differs between steps, children and runs.
func (f *control) IdempotencyKey() string { return runToken(f.root()) + "/" + f.path() }
