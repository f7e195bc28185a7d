package flow

import (
	"context"
	"fmt"
	"slices"
	"time"
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

// Wait is a condition for Await. The engine calls Watch, then Check once, so that a condition that already holds ends
// the wait at once. It calls Check again after each wake, and with live set at each backstop interval. A missed event
// therefore only delays the fiber. Check runs on a worker, without locks, and never within Watch or Wake.
type Wait interface {
	// Watch makes the source call w.Wake whenever the condition may have changed, until the caller calls stop. Wake
	// never blocks and calls no user code. The source may call Wake with locks held, from within Watch, and after stop.
	Watch(w Waker) (stop func())
	// Check reports whether the condition holds. With live set it asks the source of truth instead of a cache. An error
	// ends the wait and fails the step.
	Check(ctx context.Context, live bool) (bool, error)
}

// Backstopped is a Wait with its own interval of live checks. The default is [EngineOptions.Backstop].
type Backstopped interface {
	Wait
	// Backstop returns the interval between live checks. Zero or less disables them. The first live check comes after
	// half of the interval to all of it, to spread fibers that began to wait together.
	Backstop() time.Duration
}

// Mode says what Start does when another fiber of the key is alive.
type Mode uint8

const (
	// Preempt cancels the live fiber with cause ErrPreempted, waits until its code has returned, then starts. If
	// several fibers wait, only the last one runs. The others end as cancelled.
	Preempt Mode = iota
	// Coalesce waits until the live fiber has finished, then starts. If several fibers wait, only the last one runs.
	// The others end as cancelled with cause ErrCoalesced.
	Coalesce
	// SkipIfBusy starts no fiber and returns ErrBusy.
	SkipIfBusy
)

// Status is the state of a fiber.
type Status uint8

// The statuses.
const (
	Ready     Status = iota + 1 // waiting for a worker
	Running                     // a worker runs its code
	Parked                      // waiting without a worker
	Completed                   // ended: ran to the end
	Failed                      // ended: a step failed or panicked
	Cancelled                   // ended: cancelled, preempted or closed
	Moved                       // ended: another process continues it, see ErrMoved
)

// Ended reports whether the fiber has ended.
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

// Result is the outcome of a fiber, as passed to OnEnd. OnEnd runs once for every fiber, on a worker, before the next
// fiber of the key may run. The callback of a fiber that never began may run while another fiber of its key runs.
type Result struct {
	Handle Handle
	Status Status // Completed, Failed, Cancelled or Moved
	Err    error  // nil if and only if Completed
	Begun  bool   // false if the fiber was cancelled before any of its code ran
}

// timeSource is the clock of an engine. The default is the system clock, which testing/synctest fakes. Now must not go
// back. The engine calls both methods with a lock held: they must not block or call the engine. AfterFunc must not call
// f before it returns.
type timeSource interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d, unless stop is called first. stop reports whether it prevented
	// the call.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}
