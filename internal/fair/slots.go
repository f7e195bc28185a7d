package fair

import "sync"

// Slots bounds concurrent calls, and shares them by group, such as a namespace, and then by member. A group may hold at
// most as many slots as are free. A group whose calls hang thus gets half of the slots, and the next group always finds
// a free one. The members of a group share its slots in the same way, where a single member gets three quarters.
// Waiters take turns. Slots is safe for concurrent use and runs no callback under its lock.
type Slots struct {
	mu       sync.Mutex
	most     int
	held     Tally[string] // by group
	byMember Tally[Party]
	waiting  Queue[string, *Queue[string, request]] // by group, and then by member; each group has one item
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
	waiters := s.waiting.Line(who.Group).First()
	if s.may(who.Group) && s.mayMember(who) && (waiters == nil || waiters.Value.Line(who.Member) == nil) {
		s.count(who, 1)
		return true
	}
	if waiters == nil {
		waiters = s.waiting.Push(who.Group, &Queue[string, request]{})
	}
	s.requests[key] = waiters.Value.Push(who.Member, request{key: key, wake: wake})
	s.waits++
	return false
}

func (s *Slots) free() int { return s.most - s.held.All() }

// may reports whether a group may take another slot.
func (s *Slots) may(group string) bool { return s.held.Of(group) < s.free() }

// mayMember reports whether a member may take the next slot of a group that may take another one.
func (s *Slots) mayMember(who Party) bool {
	held := s.byMember.Of(who)
	rest := (s.free() - s.held.Of(who.Group) - 1) / 2 // further slots of the group after this one
	return held == 0 || held < 3*rest
}

// count adds to the held slots of a member.
func (s *Slots) count(who Party, n int) {
	s.held.Add(who.Group, n)
	s.byMember.Add(who, n)
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

// grant reserves the free slots for waiters, group by group.
func (s *Slots) grant() (wakes []func()) {
	for {
		var who Party
		var next *Item[string, request]
		waiters := s.waiting.Next(func(group string) bool {
			if !s.may(group) {
				return false
			}
			next = s.waiting.Line(group).First().Value.Next(func(member string) bool {
				who = Party{group, member}
				return s.mayMember(who)
			})
			return next != nil
		})
		if waiters == nil { // until a slot is released
			return wakes
		}
		if waiters.Value.Len() > 0 {
			s.waiting.Add(who.Group, waiters)
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
	if waiters := s.waiting.Line(who.Group).First(); waiters != nil && waiters.Value.Len() == 0 {
		waiters.Remove()
	}
	return r.Value.granted
}

// Usage returns the current waiters.
func (s *Slots) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Usage{Groups: s.waiting.Len(), Waits: s.waits}
	for l := range s.waiting.Lines() {
		u.Waiting += l.First().Value.Len()
	}
	return u
}
