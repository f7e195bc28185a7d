// Package interrupt ends a context by a signal, and leaves the second one to the system.
package interrupt

import (
	"context"
	"os"
	"os/signal"
)

// Context returns a copy of ctx that ends with the first of the signals; its cause says which. By then the signals do
// what they do in a program that does not ask for them: the second one, however soon it comes, ends it at once. The
// caller calls stop when it asks for signals no more, which returns when nothing is left of the asking.
func Context(ctx context.Context, signals ...os.Signal) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	came, left := make(chan os.Signal, 2), make(chan struct{}) // two: one may come until Stop has returned
	signal.Notify(came, signals...)
	go func() {
		defer close(left)
		defer signal.Stop(came)
		select {
		case first := <-came:
			signal.Stop(came) // before anybody is told
			cancel(received(first.String() + " signal received"))
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

// received is the cause of a context that a signal has ended. It matches context.Canceled, as that of
// signal.NotifyContext does.
type received string

func (r received) Error() string        { return string(r) }
func (r received) Is(target error) bool { return target == context.Canceled }

// again sends this process a signal that it was not to keep.
func again(s os.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(s) // where signals cannot be sent, the first one has to do
	}
}
