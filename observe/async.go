package observe

import (
	"sync"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/store"
)

// async handles events of several keys concurrently, in order per key. It works on at most limit keys. New events of
// such a key are folded into at most two; events of other keys stay in the stream. Memory is therefore bounded by the
// limit, and a slow key occupies only one place.
type async struct {
	limit   int
	execute func(func())
	handle  func(*store.Event)
	closed  func() bool
	// panicked is called with the value of a panic of execute.
	panicked func(v any)

	mu      sync.Mutex
	changed sync.Cond // a place has become free
	running int
	waiting map[cache.Key][]store.Event // has an entry for each key in progress
}

func newAsync(limit int, execute func(func()), handle func(*store.Event), closed func() bool) *async {
	if execute == nil {
		execute = func(fn func()) { go fn() } // owned by the delivery, which counts it
	}
	a := &async{limit: limit, execute: execute, handle: handle, closed: closed, waiting: make(map[cache.Key][]store.Event)}
	a.changed.L = &a.mu
	return a
}

// add handles the event after all earlier events of its key. It blocks until a place is free if the key needs one. Only
// one goroutine at a time may call add; workers counts the goroutines.
func (a *async) add(e store.Event, workers *sync.WaitGroup) {
	a.mu.Lock()
	if queue, working := a.waiting[e.Key]; working {
		a.waiting[e.Key] = fold(queue, e)
		a.mu.Unlock()
		return
	}
	for a.running >= a.limit {
		a.changed.Wait()
	}
	a.running++
	a.waiting[e.Key] = nil
	a.mu.Unlock()
	workers.Add(1)
	a.launch(func() {
		defer workers.Done()
		more := true
		defer func() {
			if more { // the observer called runtime.Goexit
				a.leave(e.Key)
			}
		}()
		for more {
			a.handle(&e)
			e, more = a.next(e.Key)
		}
	})
}

// launch has the executor run fn once. If the executor panics, launch reports that and runs fn in a new goroutine,
// unless fn has already begun.
func (a *async) launch(fn func()) {
	var begun atomic.Bool
	once := func() {
		if !begun.Swap(true) {
			fn()
		}
	}
	if p := protect.Call(func() { a.execute(once) }); p != nil {
		a.panicked(p.Value)
		go once() // owned like any other
	}
}

// next removes and returns the next event of the key; false if none is left.
func (a *async) next(key cache.Key) (store.Event, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	queue := a.waiting[key]
	if len(queue) == 0 || a.closed() {
		a.leaveLocked(key)
		return store.Event{}, false
	}
	a.waiting[key] = queue[1:]
	return queue[0], true
}

func (a *async) leave(key cache.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leaveLocked(key)
}

func (a *async) leaveLocked(key cache.Key) {
	delete(a.waiting, key)
	a.running--
	a.changed.Broadcast()
}

// idle waits until no key is in progress.
func (a *async) idle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.running > 0 {
		a.changed.Wait()
	}
}

// backlog returns the number of accepted events whose handling has not begun.
func (a *async) backlog() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, queue := range a.waiting {
		n += len(queue)
	}
	return n
}

// fold appends an event to the waiting events of a key. At most one Deleted or Left and one other event wait. Skipped
// events count as never having happened: the prior state of the next event is the state last delivered.
func fold(queue []store.Event, e store.Event) []store.Event {
	last := len(queue) - 1
	if last < 0 || ends(queue[last].Type) {
		return append(queue, e)
	}
	waits := &queue[last]
	switch {
	case !ends(e.Type): // Modified or Sync after Added, Modified or Sync
		if waits.Type == store.Sync {
			waits.Type = e.Type
		}
		waits.Object, waits.Version = e.Object, e.Version
		return queue
	case waits.Type == store.Added: // created and deleted while waiting
		return queue[:last]
	default:
		e.Prior = waits.Prior
		*waits = e
		return queue
	}
}

// ends reports whether the event ends the object for the observer.
func ends(t store.EventType) bool { return t == store.Deleted || t == store.Left }
