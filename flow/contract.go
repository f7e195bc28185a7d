package flow

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// StepFunc is the code of a step. It may block briefly; long waits are returned (Delay, Retry, Suspend, Await, Fork),
// so that they hold no worker. ctx ends when the fiber is cancelled, with the cause, and when it parks; do not keep it.
// What it returns is made by the methods of f.
type StepFunc[P any] func(ctx context.Context, f *Fiber[P]) Next

// Do makes a step of a function that knows nothing of fibers: nil goes on, an error fails the step.
func Do[P any](fn func(ctx context.Context, packet *P) error) StepFunc[P] {
	return func(ctx context.Context, f *Fiber[P]) Next {
		if err := fn(ctx, f.Packet); err != nil {
			return f.Fail(err)
		}
		return f.Next()
	}
}

// Wait is a condition that Await parks a fiber on. The engine calls Watch, then Check once, so that a condition that is
// true already ends the wait at once; then Check again after each wake, and every backstop interval with live set, so
// that a missed event delays but never loses. Check runs on a worker, never within Watch or Wake, with no lock held.
type Wait interface {
	// Watch arranges for w.Wake to be called whenever the condition may have changed, until the returned stop is
	// called. Wake never blocks and calls no user code; it may be called with locks held, from Watch itself, and
	// after stop.
	Watch(w Waker) (stop func())
	// Check says whether the condition holds. live asks for a look at the source of truth instead of a cache. An error
	// ends the wait and fails the step.
	Check(ctx context.Context, live bool) (bool, error)
}

// Backstopped is a Wait that says how often its condition is checked live. Others get [EngineOptions.Backstop].
type Backstopped interface {
	Wait
	// Backstop is the interval between live checks; zero or less means never. The first one comes after half of it to
	// all of it, so that fibers that began to wait together do not look together.
	Backstop() time.Duration
}

// Mode is what starting a fiber does when another fiber of its key is alive.
type Mode uint8

const (
	// Preempt cancels the live fiber with cause ErrPreempted, waits until its code has returned, then starts. Of
	// several that come while it waits, only the last one runs; the others end cancelled.
	Preempt Mode = iota
	// Coalesce lets the live fiber finish, then starts. Of several that come meanwhile only the last one runs; the
	// others end cancelled with cause ErrCoalesced.
	Coalesce
	// SkipIfBusy starts nothing and returns ErrBusy.
	SkipIfBusy
)

// Status is where a fiber is in its life.
type Status uint8

// The statuses.
const (
	Ready     Status = iota + 1 // waiting for a worker
	Running                     // a worker runs its code
	Parked                      // waiting without a worker
	Completed                   // ended: ran to the end
	Failed                      // ended: a step failed or panicked
	Cancelled                   // ended: cancelled, preempted or closed
	Moved                       // ended: another process goes on with it, see ErrMoved
)

// Ended says whether the fiber is over.
func (s Status) Ended() bool { return s >= Completed }

var statusNames = [...]string{"", "ready", "running", "parked", "completed", "failed", "cancelled", "moved"}

func (s Status) String() string { return statusNames[s] }

// MarshalText implements [encoding.TextMarshaler].
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Status) UnmarshalText(text []byte) error {
	i := slices.Index(statusNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("cannot read status: %q is none", text)
	}
	*s = Status(i)
	return nil
}

// Result is how a fiber ended. OnEnd gets it; it runs once for every fiber, on a worker, before the key is free for the
// next one. Only the callback of a fiber that never began may run beside the live fiber of its key.
type Result struct {
	Handle Handle
	Status Status // Completed, Failed, Cancelled or Moved
	Err    error  // nil if and only if Completed
	Begun  bool   // false: cancelled before any of its code ran
}

// timeSource is the engine's time. The zero EngineOptions uses the system's, which testing/synctest fakes. Now must not go
// back. Both methods are called with a lock of the engine held: they must not block nor call the engine, and AfterFunc
// must not call f before it returns.
type timeSource interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d, unless stop was called before; stop says whether it prevented
	// that.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}
