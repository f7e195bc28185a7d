// Package interrupt cancels a context on the first signal and leaves the second one to the system.
package interrupt

import (
	"context"
	"errors"
	"os"
	"os/signal"
)

// Context returns a copy of ctx that is cancelled by the first of the signals, which its cause names. From then on the
// signals have their default effect, so a second one ends the program at once. stop releases the resources and restores
// the default effect. It returns when its goroutine has ended.
func Context(ctx context.Context, signals ...os.Signal) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	came, left := make(chan os.Signal, 2), make(chan struct{}) // two: another may arrive before Stop returns
	signal.Notify(came, signals...)
	go func() {
		defer close(left)
		defer signal.Stop(came)
		select {
		case first := <-came:
			signal.Stop(came) // before the context is cancelled
			cancel(received{first})
		case <-ctx.Done():
			return
		}
		select {
		case second := <-came:
			again(second)
		default:
		}
	}()
	return ctx, func() { cancel(nil); <-left }
}

// Signal returns the signal that cancelled a context of [Context] or one derived from it, or nil.
func Signal(ctx context.Context) os.Signal {
	r, _ := errors.AsType[received](context.Cause(ctx))
	return r.signal
}

// received is the cause of a context that a signal has cancelled. It matches context.Canceled, like the cause of
// signal.NotifyContext.
type received struct{ signal os.Signal }

func (r received) Error() string        { return r.signal.String() + " signal received" }
func (r received) Is(target error) bool { return target == context.Canceled }

// again sends a signal that the channel has caught to this process once more.
func again(s os.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(s) // if signals cannot be sent, the first one must suffice
	}
}
