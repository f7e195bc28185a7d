package observe

import (
	"sync"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/store"
)

// async handles events of several keys at once, in order per key. At most limit keys are worked on; what happens to
// such a key meanwhile is folded into at most two events, and everything else stays in the stream. So memory is bounded
// by the limit, and a slow key takes one place and no more.
type async struct {
	limit   int
	execute func(func())
	handle  func(*store.Event)
	closed  func() bool
	// panicked is told of a panic of execute.
	panicked func(v any)

	mu      sync.Mutex
	changed sync.Cond // a place became free
	running int
	waiting map[cache.Key][]store.Event // a key that is being worked on has an entry
}

func newAsync(limit int, execute func(func()), handle func(*store.Event), closed func() bool) *async {
	if execute == nil {
		execute = func(fn func()) { go fn() } // owned by the delivery, which counts it
	}
	a := &async{limit: limit, execute: execute, handle: handle, closed: closed, waiting: make(map[cache.Key][]store.Event)}
	a.changed.L = &a.mu
	return a
}

// add has the event handled after all earlier ones of its key. It waits for a free place if the key needs one. Calls
// come from one goroutine at a time; workers counts the goroutines.
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
			if more { // runtime.Goexit of the observer
				a.leave(e.Key)
			}
		}()
		for more {
			a.handle(&e)
			e, more = a.next(e.Key)
		}
	})
}

// launch has the executor run the function once, and does it itself if the executor panics instead.
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

// next takes the next event of the key; false when there is none left.
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

// idle waits until nothing is being worked on.
func (a *async) idle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.running > 0 {
		a.changed.Wait()
	}
}

// backlog is how many events have been taken and not been begun.
func (a *async) backlog() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, queue := range a.waiting {
		n += len(queue)
	}
	return n
}

// fold appends an event to those that wait for a key, of which there are at most a Deleted or Left
// and one other. What the
// observer was not given counts as not happened. So the prior state of the next event is what it was given last.
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
	case waits.Type == store.Added: // it came and went
		return queue[:last]
	default:
		e.Prior = waits.Prior
		*waits = e
		return queue
	}
}

// ends says that what the observer has of an object is over.
func ends(t store.EventType) bool { return t == store.Deleted || t == store.Left }
