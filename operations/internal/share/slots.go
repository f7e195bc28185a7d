package share

import (
	"container/list"
	"sync"
)

// Slots bounds the calls under way, and shares them by namespace first and then by tenant. A namespace may hold at most
// as many as are free, so that one that floods the controller with calls that hang gets half of them and there is
// always one for the next namespace (the dynamic threshold of Choudhury and Hahne, IEEE/ACM ToN 1998); what it may hold
// its tenants share in the same way, where one gets three quarters. Those that wait take turns. It is safe for
// concurrent use and calls nobody under its lock.
type Slots struct {
	mu      sync.Mutex
	free    int
	spaces  map[string]*space
	turns   list.List // of *space with somebody who waits, the next one first
	waiting map[any]*waiter
	granted map[any]struct{}
	waits   int // so far
}

// space is what one namespace holds and waits for.
type space struct {
	namespace string
	held      int
	tenants   map[string]int // what they hold
	queue     rota
	turn      *list.Element
}

// Party is who shares things: a tenant of a namespace.
type Party struct{ Namespace, Tenant string }

// NewSlots returns n slots, which are free.
func NewSlots(n int) *Slots {
	return &Slots{
		free: n, spaces: make(map[string]*space), waiting: make(map[any]*waiter),
		granted: make(map[any]struct{}),
	}
}

// Acquire takes a slot. Without one, the caller, whom key names, is woken when one is kept for it.
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

// may tells whether a namespace may have one more.
func (s *Slots) may(sp *space) bool { return s.free > 0 && sp.held < s.free }

// mayTenant tells whether a tenant may have the next one of a namespace that may have one more.
func (s *Slots) mayTenant(sp *space, tenant string) bool {
	held, rest := sp.tenants[tenant], (s.free-sp.held-1)/2 // how many more the namespace could take after this one
	return held == 0 || held < 3*rest
}

func (s *Slots) take(sp *space, tenant string) {
	s.free--
	sp.held++
	sp.tenants[tenant]++
}

// Release gives a slot back.
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

// forget drops a namespace that neither holds nor waits for anything, and the turn of one that waits no more.
func (s *Slots) forget(sp *space) {
	if sp.turn != nil && sp.queue.empty() {
		s.turns.Remove(sp.turn)
		sp.turn = nil
	}
	if sp.held == 0 && sp.turn == nil {
		delete(s.spaces, sp.namespace)
	}
}

// grant keeps the free slots for those who wait, namespace by namespace.
func (s *Slots) grant() (wakes []func()) {
	for e := s.turns.Front(); e != nil && s.free > 0; {
		sp, next := e.Value.(*space), e.Next()
		var w *waiter
		if s.may(sp) {
			w = sp.queue.next(func(tenant string) bool { return s.mayTenant(sp, tenant) })
		}
		if w == nil { // it may not; those before it in the ring may not either, as long as no slot comes back
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

// Withdraw forgets that somebody waits. It reports whether a slot was kept for it, which the caller then has to
// release.
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

// Depth is how many calls wait for a slot.
func (s *Slots) Depth() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Usage says who waits.
func (s *Slots) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Waiting: len(s.waiting), Namespaces: s.turns.Len(), Waits: s.waits}
}
