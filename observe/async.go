package observe

import (
	"sync"

	"github.com/fairlead-io/fairlead/store"
)

// async handles events of several keys at once, in order per key. What it holds, running and waiting, is at most
// its limit; the rest stays in the stream, where it costs memory per key only. An event that waits behind a slow
// one of its key absorbs the next modification, so that one slow key cannot fill the whole room.
type async struct {
	limit   int
	handle  func(store.Event)
	mu      sync.Mutex
	free    sync.Cond
	held    int
	waiting map[store.Key][]store.Event // a key that is being worked on has an entry
	workers sync.WaitGroup
}

func newAsync(limit int, handle func(store.Event)) *async {
	a := &async{limit: limit, handle: handle, waiting: make(map[store.Key][]store.Event)}
	a.free.L = &a.mu
	return a
}

// room waits until there is room for events and returns for how many.
func (a *async) room() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.held >= a.limit {
		a.free.Wait()
	}
	return a.limit - a.held
}

// add has the event handled after all earlier ones of its key. The caller has made sure that there is room.
func (a *async) add(e store.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	queue, working := a.waiting[e.Key]
	if last := len(queue) - 1; last >= 0 && absorbs(queue[last].Type) && e.Type == store.Modified {
		queue[last].Object, queue[last].Version = e.Object, e.Version
		return
	}
	a.held++
	if working {
		a.waiting[e.Key] = append(queue, e)
		return
	}
	a.waiting[e.Key] = nil
	a.workers.Go(func() { a.work(e) })
}

func absorbs(t store.EventType) bool { return t == store.Added || t == store.Modified }

func (a *async) work(e store.Event) {
	for more := true; more; e, more = a.next(e.Key) {
		a.handle(e)
	}
}

// next takes the next event of the key; false when there is none left.
func (a *async) next(key store.Key) (store.Event, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held--
	a.free.Signal()
	queue := a.waiting[key]
	if len(queue) == 0 {
		delete(a.waiting, key)
		return store.Event{}, false
	}
	a.waiting[key] = queue[1:]
	return queue[0], true
}

// wait returns when no event is held.
func (a *async) wait() { a.workers.Wait() }
