package flow

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// Fiber is one run of a flow, as its steps see it. Only the running step may call its methods. Other code uses the
// Handle.
type Fiber[P any] struct {
	fiber
	// Packet is the data of the flow. The running step owns it.
	Packet *P
}

func newFiber[P any](packet *P) *fiber {
	t := &Fiber[P]{Packet: packet}
	t.self = t
	t.heapAt = -1
	return &t.fiber
}

// Key returns the key that the fiber, or the root fiber that forked it, was started with.
func (f *fiber) Key() string { return f.root().key }

// Epoch returns the epoch of the fiber, which is higher than that of any fiber started before it. Children have the
// epoch of their root fiber.
func (f *fiber) Epoch() uint64 { return f.root().epoch }

// Attempt returns how often this step has run before in a row. It is 0 for the first run. Retry, a failed attempt and a
// detour increase it.
func (f *fiber) Attempt() int { return int(f.progress.attempt) }

// Durable reports whether the fiber, or the root fiber that forked it, has Positions. Steps of a durable fiber may run
// again after a crash.
func (f *fiber) Durable() bool { return f.root().durable() != nil }

// Path returns the path of the step, as in "bring-up/managed-servers[3]/wait-ready".
func (f *fiber) Path() string { return f.path() }

// Entered returns when the step was first entered, including before a restart.
func (f *fiber) Entered() time.Time { return f.e.wall(f.progress.entered) }

// Began returns when the fiber was first started, including before a restart.
func (f *fiber) Began() time.Time { return f.e.wall(f.progress.began) }

// Now returns the engine's time.
func (f *fiber) Now() time.Time { return f.e.clock.Now() }

// Handle returns a handle of the fiber for other code.
func (f *fiber) Handle() Handle { return Handle{f} }

// Err returns the error that led to this step through Else or OnError, or nil. After a restart it is a *SavedError.
func (f *fiber) Err() error {
	if x := f.x.Load(); x != nil {
		return x.led()
	}
	return nil
}

// Value returns the value of the last resume of the fiber, if it is a T. The value does not survive a restart. Use the
// checkpoint for data that later steps need.
func Value[T, P any](f *Fiber[P]) (T, bool) {
	x := f.x.Load()
	if x == nil {
		var zero T
		return zero, false
	}
	f.e.mu.Lock() // a token of the running step may be resumed concurrently
	given := x.value
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
	return find[T](f.e.opt.Providers)
}

// SetCheckpoint keeps v, encoded as JSON, in the position of the fiber. The next save writes it.
func (f *fiber) SetCheckpoint(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot set checkpoint: %w", err)
	}
	f.ext().checkpoint = data
	return nil
}

// Checkpoint decodes the value of SetCheckpoint into v. It returns false if there is none. The value survives a
// restart.
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

// Next goes to the following step. After the last step the fiber is completed.
func (f *fiber) Next() Next { return Next{op: opNext} }

// Goto goes to another step, which is named relative to this one. A Detour returns to this step.
func (f *fiber) Goto(step string) Next { return Next{op: opGoto, then: step} }

// Delay parks the fiber for d, then goes to the following step.
func (f *fiber) Delay(d time.Duration) Next { return Next{op: opDelay, d: d} }

// Retry parks the fiber for d, then runs the same step again. Backoff.Delay(f.Attempt()+1) is a good d.
func (f *fiber) Retry(d time.Duration) Next { return Next{op: opRetry, d: d} }

// End completes the fiber.
func (f *fiber) End() Next { return Next{op: opEnd} }

// Fail fails the step. The engine retries it if its Retry option allows that. Otherwise the fiber goes to the Else or
// OnError step, or fails with a *StepError if there is none. A nil err is also a failure.
func (f *fiber) Fail(err error) Next {
	if err == nil {
		err = fmt.Errorf("step failed without an error")
	}
	return Next{op: opFail, err: err}
}

// Yield lets other fibers run, then goes to the following step.
func (f *fiber) Yield() Next { return Next{op: opYield} }

// Await parks the fiber until one of the waits holds. Without waits it parks until a deadline or a cancellation. A
// failed Check or a Timeout fails the step.
func (f *fiber) Await(waits ...Wait) Next { return Next{op: opAwait, waits: waits} }

// Fork runs children, each as a fiber of its own, and waits until they have ended. The options are Limit, FailFast,
// Quorum and First. Any other option fails the step with ErrInvalid.
func (f *fiber) Fork(children []Child, opts ...Option) Next {
	s := settle(opts)
	spec := &forkSpec{children: children, mode: s.fork, fault: s.fork.fault()}
	if s.stepOnly() {
		spec.fault = "has an option of steps"
	}
	return Next{op: opFork, forked: spec}
}

// Suspend parks the fiber until t is resumed. The same step must have made t with Token, and t may already be resumed.
// The actions run after the step has returned. Their context lives until the fiber is resumed. An error or a panic of
// an action fails the step.
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

// runToken returns the identifier of the run. That of a durable fiber survives restarts.
func (f *fiber) runToken() string {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	x := f.ext()
	if x.token == "" {
		x.token = rand.Text()
	}
	return x.token
}

// IdempotencyKey returns a key for external requests of this step. It is the same for each attempt and, for a durable
// fiber, after a restart. It differs between steps, children and runs.
func (f *fiber) IdempotencyKey() string { return f.root().runToken() + "/" + f.path() }
