package flow

import (
	"context"
	"time"
)

// Option tunes a step or a fork when the flow is built. Limit, FailFast, Quorum and First are for forks only.
type Option struct{ apply func(*settings) }

// settings are what options say about one node.
type settings struct {
	done     any // DoneFunc[P]
	undo     any // StepFunc[P]
	save     bool
	onError  string
	targets  []string
	deadline time.Duration
	retry    *Backoff
	fork     forkMode
	forkOnly bool // an option for forks was given
}

// stepOnly says whether an option was given that a fork which a step returns cannot have.
func (s *settings) stepOnly() bool {
	return s.done != nil || s.undo != nil || s.save || s.onError != "" || s.targets != nil || s.deadline != 0 || s.retry != nil
}

func settle(opts []Option) settings {
	var s settings
	for _, o := range opts {
		if o.apply != nil {
			o.apply(&s)
		}
	}
	return s
}

// Save records the position before each run of the step, and runs it only once that has succeeded: for effects outside that
// must not be made without a durable trace. Only fibers with Positions are recorded.
func Save() Option { return Option{func(s *settings) { s.save = true }} }

// Done asks, when the step is entered or resumed after a restart, whether its effect is visible already; if so the step is
// skipped. An error fails the step like one of its own.
func Done[P any](fn func(ctx context.Context, f *Fiber[P]) (bool, error)) Option {
	return Option{func(s *settings) { s.done = fn }}
}

// Undo reverses the step. Flow.Undo runs it, in reverse order, for each step up to the last one begun; it must therefore
// tolerate that the step has done nothing, or only a part. It may park like any step. With Positions, the position is saved before the step
// is run for the first time, unless it says already that the fiber has come so far; if that fails several times, so does the step.
func Undo[P any](fn func(ctx context.Context, f *Fiber[P]) Next) Option {
	return Option{func(s *settings) { s.undo = StepFunc[P](fn) }}
}

// OnError sends the fiber to another step, instead of failing it, when this one fails for good. A step that a [Detour] leads back to
// after its Deadline fails the fiber.
func OnError(step string) Option { return Option{func(s *settings) { s.onError = step }} }

// To declares the steps that this one may go to, so that a wrong name is found when the flow is built.
func To(steps ...string) Option {
	return Option{func(s *settings) { s.targets = append(s.targets, steps...) }}
}

// Deadline limits the step from when it is entered first, retries, waits and restarts included. Its context ends then, and
// so does a wait; the error matches ErrTimeout.
func Deadline(d time.Duration) Option { return Option{func(s *settings) { s.deadline = d }} }

// Retry runs a step that failed again, parked for the back-off in between, until b.Attempts runs have failed. A panic is
// not retried, nor is an error that matches ErrFinal.
func Retry(b Backoff) Option { return Option{func(s *settings) { s.retry = &b }} }

// Limit bounds how many children of a fork are alive at a time; zero is no limit, a negative one ErrInvalid.
func Limit(n int) Option {
	return Option{func(s *settings) { s.fork.limit, s.forkOnly = n, true }}
}

// FailFast cancels the other children of a fork when one fails. The default waits for all and joins their errors.
func FailFast() Option {
	return Option{func(s *settings) { s.fork.failFast, s.forkOnly = true, true }}
}

// Quorum ends a fork when n children have completed, and cancels the others; it fails as soon as n cannot be reached. n is at least 1; less
// is ErrInvalid.
func Quorum(n int) Option {
	return Option{func(s *settings) { s.fork.quorum, s.fork.some, s.forkOnly = n, true, true }}
}

// First ends a fork when one child has completed.
func First() Option { return Quorum(1) }
