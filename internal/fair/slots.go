package fair

import "sync"

// Slots bounds concurrent calls, and shares them by namespace first and then by tenant. A namespace may hold at most as
// many slots as are free. A namespace whose calls hang thus gets half of the slots, and the next namespace always finds
// one. The tenants of a namespace share its slots in the same way, where a single tenant gets three quarters. Waiters
// take turns. Slots is safe for concurrent use and runs no callback under its lock.
type Slots struct {
	mu       sync.Mutex
	held     Quota[string]                          // by namespace
	byTenant map[Party]int                          // held slots
	waiting  Queue[string, *Queue[string, request]] // by namespace, and then by tenant; each namespace has one item
	requests map[any]*Item[string, request]         // waiting, or granted
	waits    int                                    // number so far
}

// NewSlots returns n free slots.
func NewSlots(n int) *Slots {
	return &Slots{
		held: Quota[string]{Most: n}, byTenant: make(map[Party]int), requests: make(map[any]*Item[string, request]),
	}
}

// Acquire takes a slot and reports whether it did. Otherwise wake is called when a slot is reserved for key.
func (s *Slots) Acquire(who Party, key any, wake func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.requests[key]; r != nil {
		if r.Value.granted {
			delete(s.requests, key)
		}
		return r.Value.granted
	}
	space := s.waiting.Line(who.Namespace).First()
	if s.may(who.Namespace) && s.mayTenant(who) && (space == nil || space.Value.Line(who.Tenant) == nil) {
		s.take(who)
		return true
	}
	if space == nil {
		space = s.waiting.Push(who.Namespace, &Queue[string, request]{})
	}
	s.requests[key] = space.Value.Push(who.Tenant, request{key: key, wake: wake})
	s.waits++
	return false
}

// may reports whether a namespace may take another slot.
func (s *Slots) may(namespace string) bool { return s.held.Held(namespace) < s.held.Free() }

// mayTenant reports whether a tenant may take the next slot of a namespace that may take another one.
func (s *Slots) mayTenant(who Party) bool {
	held, rest := s.byTenant[who], (s.held.Free()-s.held.Held(who.Namespace)-1)/2 // further slots of the namespace after this one
	return held == 0 || held < 3*rest
}

func (s *Slots) take(who Party) {
	s.held.Add(who.Namespace, 1)
	s.byTenant[who]++
}

// Release returns a slot.
func (s *Slots) Release(who Party) {
	s.mu.Lock()
	s.held.Add(who.Namespace, -1)
	if s.byTenant[who]--; s.byTenant[who] == 0 {
		delete(s.byTenant, who)
	}
	wakes := s.grant()
	s.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// grant reserves the free slots for waiters, namespace by namespace.
func (s *Slots) grant() (wakes []func()) {
	for {
		var who Party
		var next *Item[string, request]
		space := s.waiting.Next(func(namespace string) bool {
			if !s.may(namespace) {
				return false
			}
			next = s.waiting.Line(namespace).First().Value.Next(func(tenant string) bool {
				who = Party{namespace, tenant}
				return s.mayTenant(who)
			})
			return next != nil
		})
		if space == nil { // until a slot is released
			return wakes
		}
		if space.Value.Len() > 0 {
			s.waiting.Add(who.Namespace, space)
		}
		s.take(who)
		next.Value.granted = true
		wakes = append(wakes, next.Value.wake)
	}
}

// Withdraw removes a waiter. It reports whether a slot was reserved for it, which the caller must release.
func (s *Slots) Withdraw(who Party, key any) (reserved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests[key]
	if r == nil {
		return false
	}
	delete(s.requests, key)
	r.Remove()
	if space := s.waiting.Line(who.Namespace).First(); space != nil && space.Value.Len() == 0 {
		space.Remove()
	}
	return r.Value.granted
}

// Usage returns the current waiters.
func (s *Slots) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Usage{Namespaces: s.waiting.Len(), Waits: s.waits}
	for l := range s.waiting.Lines() {
		u.Waiting += l.First().Value.Len()
	}
	return u
}
