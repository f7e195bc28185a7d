package fair

import (
	"context"
	"sync"
)

// Workers runs work in goroutines, one for each key with work. The owner adds the work of a key when the first item
// arrives, and the work returns when no items are left. Work that is added before Run waits for it. Workers takes no
// other lock under its lock.
type Workers struct {
	wake chan struct{} // holds a token while added may contain work

	mu    sync.Mutex
	added []func(context.Context)
}

// NewWorkers returns a Workers without work.
func NewWorkers() *Workers { return &Workers{wake: make(chan struct{}, 1)} }

// Add starts work in a goroutine of Run.
func (w *Workers) Add(work func(context.Context)) {
	w.mu.Lock()
	w.added = append(w.added, work)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run runs the work until the context ends, and waits for the started goroutines.
func (w *Workers) Run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		added := w.added
		w.added = nil
		w.mu.Unlock()
		for _, work := range added {
			working.Go(func() { work(ctx) })
		}
	}
}
