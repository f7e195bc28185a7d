package flow

import (
	"context"
	"time"
)

// Option configures a step or a fork when the flow is built. Limit, FailFast, Quorum and First are for forks only.
type Option struct{ apply func(*settings) }

// settings are the options of one node.
type settings struct {
	done     any // DoneFunc[P]
	undo     any // StepFunc[P]
	save     bool
	onError  string
	targets  []string
	deadline time.Duration
	retry    *Backoff
	fork     forkMode
	forkOnly bool // an option for forks only was given
}

// stepOnly reports whether an option was given that Fiber.Fork does not allow.
func (s *settings) stepOnly() bool {
	return s.done != nil || s.undo != nil || s.save || s.onError != "" || s.targets != nil || s.deadline != 0 ||
		s.retry != nil
}

func settingsOf(opts []Option) settings {
	var s settings
	for _, o := range opts {
		if o.apply != nil {
			o.apply(&s)
		}
	}
	return s
}

// Save saves the position before each run of the step. The step runs only after the save has succeeded. Use it for
// external effects that need a durable record first. It has no effect on fibers without Positions.
func Save() Option { return Option{func(s *settings) { s.save = true }} }

// Done calls fn when the step is entered, or resumed after a restart. fn reports whether the effect of the step exists
// already; the engine then skips the step. An error of fn fails the step.
func Done[P any](fn func(ctx context.Context, f *Fiber[P]) (bool, error)) Option {
	return Option{func(s *settings) { s.done = fn }}
}

// Undo sets the function that reverses the step. [Flow.Undo] runs these functions in reverse order, for each step up to
// the last one begun. fn must therefore tolerate that the step has done nothing, or only a part of its work. fn may
// park like any step. For a fiber with Positions, the engine saves the position before the first run of the step,
// unless the stored position already covers it. If that save fails several times, the step fails.
func Undo[P any](fn func(ctx context.Context, f *Fiber[P]) Next) Option {
	return Option{func(s *settings) { s.undo = StepFunc[P](fn) }}
}

// OnError sends the fiber to another step, instead of failing it, when this step fails for good. If a [Detour] returns
// to a step whose Deadline has passed, the fiber fails.
func OnError(step string) Option { return Option{func(s *settings) { s.onError = step }} }

// To declares the steps that this step may go to, so that New finds a wrong name.
func To(steps ...string) Option {
	return Option{func(s *settings) { s.targets = append(s.targets, steps...) }}
}

// Deadline limits the time of the step, counted from its first entry. The limit includes retries, waits and restarts.
// At the deadline the context of the step ends, and so does a wait. The error matches ErrTimeout.
func Deadline(d time.Duration) Option { return Option{func(s *settings) { s.deadline = d }} }

// Retry runs a failed step again, until b.Attempts runs have failed. The fiber is parked for the back-off between runs.
// A panic is not retried, nor is an error that matches ErrFinal.
func Retry(b Backoff) Option { return Option{func(s *settings) { s.retry = &b }} }

// Limit bounds how many children of a fork are alive at a time. Zero means no limit. A negative n is ErrInvalid.
func Limit(n int) Option {
	return Option{func(s *settings) { s.fork.limit, s.forkOnly = n, true }}
}

// FailFast cancels the other children of a fork when one fails. By default a fork waits for all children and joins
// their errors.
func FailFast() Option {
	return Option{func(s *settings) { s.fork.failFast, s.forkOnly = true, true }}
}

// Quorum ends a fork when n children have completed, and cancels the others. The fork fails as soon as n cannot be
// reached. An n less than 1 is ErrInvalid.
func Quorum(n int) Option {
	return Option{func(s *settings) { s.fork.quorum, s.fork.some, s.forkOnly = n, true, true }}
}

// First ends a fork when one child has completed.
func First() Option { return Quorum(1) }
