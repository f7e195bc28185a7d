package fair

import "sync"

// Slots bounds concurrent calls, and shares them by namespace first and then by tenant. A namespace may hold at most as
// many slots as are free. A namespace whose calls hang thus gets half of the slots, and the next namespace always finds
// one. The tenants of a namespace share its slots in the same way, where a single tenant gets three quarters. Waiters
// take turns. Slots is safe for concurrent use and runs no callback under its lock.
type Slots struct {
	mu       sync.Mutex
	most     int
	held     Tally[string] // by namespace
	byTenant Tally[Party]
	waiting  Queue[string, *Queue[string, request]] // by namespace, and then by tenant; each namespace has one item
	requests map[any]*Item[string, request]         // waiting, or granted
	waits    int                                    // number so far
}

// NewSlots returns n free slots.
func NewSlots(n int) *Slots {
	return &Slots{most: n, requests: make(map[any]*Item[string, request])}
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
		s.count(who, 1)
		return true
	}
	if space == nil {
		space = s.waiting.Push(who.Namespace, &Queue[string, request]{})
	}
	s.requests[key] = space.Value.Push(who.Tenant, request{key: key, wake: wake})
	s.waits++
	return false
}

func (s *Slots) free() int { return s.most - s.held.All() }

// may reports whether a namespace may take another slot.
func (s *Slots) may(namespace string) bool { return s.held.Of(namespace) < s.free() }

// mayTenant reports whether a tenant may take the next slot of a namespace that may take another one.
func (s *Slots) mayTenant(who Party) bool {
	held := s.byTenant.Of(who)
	rest := (s.free() - s.held.Of(who.Namespace) - 1) / 2 // further slots of the namespace after this one
	return held == 0 || held < 3*rest
}

// count adds to the held slots of a tenant.
func (s *Slots) count(who Party, n int) {
	s.held.Add(who.Namespace, n)
	s.byTenant.Add(who, n)
}

// Release returns a slot.
func (s *Slots) Release(who Party) {
	s.mu.Lock()
	s.count(who, -1)
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
		s.count(who, 1)
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
