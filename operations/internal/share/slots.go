package share

import (
	"container/list"
	"sync"
)

// Slots bounds concurrent calls, and shares them by namespace first and then by tenant. A namespace may hold at most as
// many slots as are free. A namespace whose calls hang thus gets half of the slots, and the next namespace always finds
// one (the dynamic threshold of Choudhury and Hahne, IEEE/ACM ToN 1998). The tenants of a namespace share its slots in
// the same way, where a single tenant gets three quarters. Waiters take turns. Slots is safe for concurrent use and
// runs no callback under its lock.
type Slots struct {
	mu      sync.Mutex
	free    int
	spaces  map[string]*space
	turns   list.List // of *space with waiters, in order
	waiting map[any]*waiter
	granted map[any]struct{}
	waits   int // number so far
}

// space is the state of one namespace.
type space struct {
	namespace string
	held      int
	tenants   map[string]int // held slots
	queue     rota
	turn      *list.Element
}

// Party identifies a tenant of a namespace.
type Party struct{ Namespace, Tenant string }

// NewSlots returns n free slots.
func NewSlots(n int) *Slots {
	return &Slots{
		free: n, spaces: make(map[string]*space), waiting: make(map[any]*waiter),
		granted: make(map[any]struct{}),
	}
}

// Acquire takes a slot and reports whether it did. Otherwise wake is called when a slot is reserved for key.
func (s *Slots) Acquire(who Party, key any, wake func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.granted[key]; ok {
		delete(s.granted, key)
		return true
	}
	if s.waiting[key] != nil {
		return false
	}
	sp := s.spaces[who.Namespace]
	if sp == nil {
		sp = &space{namespace: who.Namespace, tenants: make(map[string]int)}
		s.spaces[who.Namespace] = sp
	}
	if s.may(sp) && sp.queue.lanes[who.Tenant] == nil && s.mayTenant(sp, who.Tenant) {
		s.take(sp, who.Tenant)
		return true
	}
	w := &waiter{key: key, wake: wake}
	s.waiting[key] = w
	s.waits++
	sp.queue.add(who.Tenant, w)
	if sp.turn == nil {
		sp.turn = s.turns.PushBack(sp)
	}
	return false
}

// may reports whether a namespace may take another slot.
func (s *Slots) may(sp *space) bool { return s.free > 0 && sp.held < s.free }

// mayTenant reports whether a tenant may take the next slot of a namespace that may take another one.
func (s *Slots) mayTenant(sp *space, tenant string) bool {
	held, rest := sp.tenants[tenant], (s.free-sp.held-1)/2 // further slots of the namespace after this one
	return held == 0 || held < 3*rest
}

func (s *Slots) take(sp *space, tenant string) {
	s.free--
	sp.held++
	sp.tenants[tenant]++
}

// Release returns a slot.
func (s *Slots) Release(who Party) {
	s.mu.Lock()
	s.free++
	sp := s.spaces[who.Namespace]
	sp.held--
	if sp.tenants[who.Tenant]--; sp.tenants[who.Tenant] == 0 {
		delete(sp.tenants, who.Tenant)
	}
	s.forget(sp)
	wakes := s.grant()
	s.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// forget drops a namespace without slots and waiters, and the turn of one without waiters.
func (s *Slots) forget(sp *space) {
	if sp.turn != nil && sp.queue.empty() {
		s.turns.Remove(sp.turn)
		sp.turn = nil
	}
	if sp.held == 0 && sp.turn == nil {
		delete(s.spaces, sp.namespace)
	}
}

// grant reserves the free slots for waiters, namespace by namespace.
func (s *Slots) grant() (wakes []func()) {
	for e := s.turns.Front(); e != nil && s.free > 0; {
		sp, next := e.Value.(*space), e.Next()
		var w *waiter
		if s.may(sp) {
			w = sp.queue.next(func(tenant string) bool { return s.mayTenant(sp, tenant) })
		}
		if w == nil { // the namespaces before it may not take a slot either, until one is released
			e = next
			continue
		}
		s.take(sp, w.lane.tenant)
		key := w.key
		delete(s.waiting, key)
		s.granted[key] = struct{}{}
		wakes = append(wakes, w.wake)
		s.turns.MoveToBack(e)
		s.forget(sp)
		e = s.turns.Front()
	}
	return wakes
}

// Withdraw removes a waiter. It reports whether a slot was reserved for it, which the caller must release.
func (s *Slots) Withdraw(who Party, key any) (kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, kept = s.granted[key]; kept {
		delete(s.granted, key)
		return true
	}
	if w := s.waiting[key]; w != nil {
		sp := s.spaces[who.Namespace]
		delete(s.waiting, key)
		sp.queue.remove(w)
		s.forget(sp)
	}
	return false
}

// Depth returns the number of waiting calls.
func (s *Slots) Depth() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Usage returns the current waiters.
func (s *Slots) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Waiting: len(s.waiting), Namespaces: s.turns.Len(), Waits: s.waits}
}
