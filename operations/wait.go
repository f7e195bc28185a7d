package operations

import (
	"context"
	"fmt"
	"sync"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

var errDeleted = fmt.Errorf("%w: it was deleted", ErrNotFound)

// awaited finds the outcome of one operation in the events of its Operation. Only the goroutine of the caller uses it.
type awaited struct {
	id       string
	written  bool       // the Operation was seen, so its absence means that it was deleted
	progress func(View) // called with every state before the end; nil: none

	outcome View
	err     error
}

// next handles an event and reports whether to continue.
func (a *awaited) next(e *store.Event) (more bool) {
	if e.Type == store.Synced && e.Count == 0 && a.written {
		a.err = errDeleted
		return false
	}
	if e.Object == nil {
		return true
	}
	op, err := store.As[v1alpha1.Operation](e.Object)
	if err != nil {
		a.err = err
		return false
	}
	v, ours := ViewOfID(op, a.id)
	if ours && v.Terminal() {
		a.outcome = v // also the last known state of a deleted operation
		return false
	}
	a.written = a.written || ours
	switch {
	case e.Type == store.Deleted && a.written:
		a.err = errDeleted
		return false
	case e.Type != store.Deleted && ours && a.progress != nil:
		a.progress(v)
	}
	return true
}

// wait follows an Operation until its operation has ended. The error is the context's cause, or that of the operation.
func wait(ctx context.Context, w watched, a *awaited) (View, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sources sync.WaitGroup
	defer sources.Wait()
	defer cancel()
	events := w.store.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{Name: "wait"},
		Consume: func(events []store.Event) (more bool) {
			for i := range events {
				if ctx.Err() != nil {
					return true // Run returns the cause
				}
				if !a.next(&events[i]) {
					return false
				}
			}
			return true
		},
	})
	sources.Go(func() { _ = w.source.Run(ctx) }) // it retries until the context ends
	if err := events.Run(ctx); err != nil {
		return View{}, err
	}
	return a.outcome, a.err
}
