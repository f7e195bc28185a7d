package reconcile

import (
	"context"
	"sync"

	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// workers are the goroutines that reconcile. An idle controller has none.
type workers struct {
	// next returns the next reconciliation for the goroutine id. If there is none, the worker ends.
	next func(id goroutine.ID) (context.Context, *reconciliation)
	// perform runs a reconciliation. It may end its goroutine.
	perform func(ctx context.Context, r *reconciliation)
	// replace is called when perform has ended the goroutine of a worker.
	replace func()

	running sync.WaitGroup
}

// start starts a worker. It does not block.
func (w *workers) start() { w.running.Go(w.loop) }

// wait returns when all workers have ended. No worker may be started meanwhile, except by another worker.
func (w *workers) wait() { w.running.Wait() }

// loop reconciles until no object is ready.
func (w *workers) loop() {
	returned := false
	defer func() {
		if !returned { // the user's function called runtime.Goexit
			w.replace()
		}
	}()
	id := goroutine.Current()
	for ctx, r := w.next(id); r != nil; ctx, r = w.next(id) {
		w.perform(ctx, r)
	}
	returned = true
}
