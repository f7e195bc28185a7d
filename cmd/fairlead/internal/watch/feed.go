package watch

import (
	"context"

	"github.com/fairlead-io/fairlead/internal/store"
)

// feed runs a consumer of changes in one goroutine. Other goroutines can wait until it has consumed the pending ones.
type feed struct {
	flushes chan chan<- struct{} // receives channels, and closes each one when all pending changes are consumed
	ended   chan struct{}        // closed at the end of run
}

func newFeed() *feed { return &feed{flushes: make(chan chan<- struct{}), ended: make(chan struct{})} }

// flush waits until the changes that are pending now are consumed, or run or ctx has ended.
func (f *feed) flush(ctx context.Context) {
	done := make(chan struct{})
	select {
	case f.flushes <- done:
	case <-f.ended:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// run consumes changes until ctx ends or stop returns true.
func (f *feed) run(ctx context.Context, changes *store.Drainer, stop func() bool) error {
	defer close(f.ended)
	defer changes.Close()
	consume := func(done chan<- struct{}) { // later changes are not awaited
		for left := changes.Lag(); left > 0 && ctx.Err() == nil && changes.Step(); left-- {
			continue
		}
		close(done)
	}
	for ctx.Err() == nil && !stop() {
		select {
		case done := <-f.flushes:
			consume(done)
			continue
		default:
		}
		if changes.Step() {
			continue
		}
		select {
		case <-changes.Woken():
		case <-ctx.Done():
		case done := <-f.flushes:
			consume(done)
		}
	}
	return context.Cause(ctx)
}
