package client

import (
	"sync"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
)

// hubs wake waits. They use one subscription for each store with waits, and no goroutine.
type hubs struct {
	mu      sync.Mutex
	byStore map[*cache.Store]*hub
}

// hub holds the waits on one store.
type hub struct {
	st    *cache.Store
	drain *store.Drainer

	mu    sync.Mutex // locked after hubs.mu
	waits map[Key]map[*flow.Waker]struct{}
	count int
}

// join makes each event of a key wake w until leave is called.
func (hs *hubs) join(st *cache.Store, key Key, w flow.Waker) (leave func()) {
	hs.mu.Lock()
	h := hs.byStore[st]
	if h == nil {
		if hs.byStore == nil {
			hs.byStore = map[*cache.Store]*hub{}
		}
		h = &hub{st: st, waits: map[Key]map[*flow.Waker]struct{}{}}
		hs.byStore[st] = h
	}
	fresh := h.drain == nil
	if fresh {
		h.drain = st.Drain(store.DrainOptions{
			SubscribeOptions: store.SubscribeOptions{Name: "client waits", From: store.FromNow},
			Batch:            takeAtOnce, Inline: true, Consume: h.events,
		})
	}
	own := &w
	h.mu.Lock()
	if h.waits[key] == nil {
		h.waits[key] = map[*flow.Waker]struct{}{}
	}
	h.waits[key][own] = struct{}{}
	h.count++
	h.mu.Unlock()
	hs.mu.Unlock()
	if fresh {
		h.drain.Start()
	}
	return sync.OnceFunc(func() { hs.leave(h, key, own) })
}

func (hs *hubs) leave(h *hub, key Key, own *flow.Waker) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.mu.Lock()
	delete(h.waits[key], own)
	if len(h.waits[key]) == 0 {
		delete(h.waits, key)
	}
	h.count--
	last := h.count == 0
	h.mu.Unlock()
	if last && hs.byStore[h.st] == h {
		delete(hs.byStore, h.st)
		h.drain.Close()
	}
}

func (hs *hubs) close() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.byStore {
		h.drain.Close()
	}
	clear(hs.byStore)
}

const takeAtOnce = 256

// events wakes the waits on the changed keys. It runs on the goroutine that fills the store.
func (h *hub) events(events []store.Event) (more bool) {
	for i := range events {
		h.event(&events[i])
	}
	return true
}

// poke wakes the waits on a key after a write of this client changed the store. Such a write causes no event.
func (hs *hubs) poke(st *cache.Store, key Key) {
	hs.mu.Lock()
	h := hs.byStore[st]
	hs.mu.Unlock()
	if h != nil {
		h.event(&store.Event{Type: store.Modified, Key: key})
	}
}

func (h *hub) event(e *store.Event) {
	h.mu.Lock()
	var wakers []flow.Waker
	if e.Type == store.Epoch || e.Type == store.Synced { // any answer may have changed
		for _, ws := range h.waits {
			wakers = appendWakers(wakers, ws)
		}
	} else {
		wakers = appendWakers(nil, h.waits[e.Key])
	}
	h.mu.Unlock()
	for _, w := range wakers {
		w.Wake()
	}
}

func appendWakers(to []flow.Waker, set map[*flow.Waker]struct{}) []flow.Waker {
	for w := range set {
		to = append(to, *w)
	}
	return to
}
