package client

import (
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
)

// waits wakes the waits on objects. It uses one subscription for each store with waits, and no goroutine.
type waits struct {
	mu      sync.Mutex
	byStore map[*cache.Store]*storeWaits
}

// storeWaits holds the waits on one store.
type storeWaits struct {
	st    *cache.Store
	drain *store.Drainer

	mu    sync.Mutex // locked after waits.mu
	waits map[Key]map[*flow.Waker]struct{}
	count int
}

// add makes each event of a key wake w until remove is called.
func (ws *waits) add(st *cache.Store, key Key, w flow.Waker) (remove func()) {
	ws.mu.Lock()
	h := ws.byStore[st]
	if h == nil {
		if ws.byStore == nil {
			ws.byStore = map[*cache.Store]*storeWaits{}
		}
		h = &storeWaits{st: st, waits: map[Key]map[*flow.Waker]struct{}{}}
		ws.byStore[st] = h
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
	ws.mu.Unlock()
	if fresh {
		h.drain.Start()
	}
	return sync.OnceFunc(func() { ws.remove(h, key, own) })
}

func (ws *waits) remove(h *storeWaits, key Key, own *flow.Waker) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	h.mu.Lock()
	delete(h.waits[key], own)
	if len(h.waits[key]) == 0 {
		delete(h.waits, key)
	}
	h.count--
	last := h.count == 0
	h.mu.Unlock()
	if last && ws.byStore[h.st] == h {
		delete(ws.byStore, h.st)
		h.drain.Close()
	}
}

func (ws *waits) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, h := range ws.byStore {
		h.drain.Close()
	}
	clear(ws.byStore)
}

const takeAtOnce = 256

// events wakes the waits on the changed keys. It runs on the goroutine that fills the store.
func (s *storeWaits) events(events []store.Event) (more bool) {
	for i := range events {
		s.event(&events[i])
	}
	return true
}

// wake wakes the waits on a key after a write of this client changed the store. Such a write causes no event.
func (ws *waits) wake(st *cache.Store, key Key) {
	ws.mu.Lock()
	h := ws.byStore[st]
	ws.mu.Unlock()
	if h != nil {
		h.event(&store.Event{Type: store.Modified, Key: key})
	}
}

func (s *storeWaits) event(e *store.Event) {
	s.mu.Lock()
	var wakers []flow.Waker
	if e.Type == store.Epoch || e.Type == store.Synced { // any answer may have changed
		for _, of := range s.waits {
			wakers = appendWakers(wakers, of)
		}
	} else {
		wakers = appendWakers(nil, s.waits[e.Key])
	}
	s.mu.Unlock()
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

// cacheTimeout bounds WaitForCache, and the time in which the cache catches up with a write that cannot be stored in
// it.
const cacheTimeout = 10 * time.Second
