package executor

import "sync"

// slots bounds the calls under way, and shares them between tenants: a tenant may hold at most as many as are free, so that one that
// floods the controller with calls that hang gets half of them and there is always one for the next tenant (the dynamic threshold of
// Choudhury and Hahne, IEEE/ACM ToN 1998). Tenants that wait take turns. It is safe for concurrent use and calls nobody under its lock.
type slots struct {
	mu      sync.Mutex
	free    int
	held    map[string]int
	waiting map[string][]waiter // by tenant, who came first is first
	turns   []string            // the tenants that wait, the next one first
	granted map[slotKey]struct{}
}

// slotKey is who waits.
type slotKey struct {
	run    *run
	target target
}

type waiter struct {
	key  slotKey
	wake func()
}

func newSlots(n int) *slots {
	return &slots{free: n, held: make(map[string]int), waiting: make(map[string][]waiter), granted: make(map[slotKey]struct{})}
}

// acquire takes a slot. Without one, the caller is woken when one is kept for it.
func (s *slots) acquire(tenant string, key slotKey, wake func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.granted[key]; ok {
		delete(s.granted, key)
		return true
	}
	queue := s.waiting[tenant]
	for _, w := range queue {
		if w.key == key {
			return false
		}
	}
	if len(queue) == 0 && s.may(tenant) {
		s.take(tenant)
		return true
	}
	if len(queue) == 0 {
		s.turns = append(s.turns, tenant)
	}
	s.waiting[tenant] = append(queue, waiter{key, wake})
	return false
}

func (s *slots) may(tenant string) bool { return s.free > 0 && s.held[tenant] < max(1, s.free) }

func (s *slots) take(tenant string) {
	s.free--
	s.held[tenant]++
}

// release gives a slot back.
func (s *slots) release(tenant string) {
	s.mu.Lock()
	s.free++
	if s.held[tenant]--; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
	wakes := s.grant()
	s.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// grant keeps the free slots for those who wait, tenant by tenant.
func (s *slots) grant() (wakes []func()) {
	for skipped := 0; skipped < len(s.turns); {
		tenant := s.turns[0]
		s.turns = s.turns[1:]
		if !s.may(tenant) {
			s.turns = append(s.turns, tenant)
			skipped++
			continue
		}
		skipped = 0
		queue := s.waiting[tenant]
		s.take(tenant)
		s.granted[queue[0].key] = struct{}{}
		wakes = append(wakes, queue[0].wake)
		s.setQueue(tenant, queue[1:])
		if len(queue) > 1 {
			s.turns = append(s.turns, tenant)
		}
	}
	return wakes
}

func (s *slots) setQueue(tenant string, queue []waiter) {
	if len(queue) == 0 {
		delete(s.waiting, tenant)
		return
	}
	s.waiting[tenant] = queue
}

// withdraw forgets that somebody waits. It reports whether a slot was kept for it, which the caller then has to release.
func (s *slots) withdraw(tenant string, key slotKey) (kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, kept = s.granted[key]; kept {
		delete(s.granted, key)
		return true
	}
	queue := s.waiting[tenant]
	for i, w := range queue {
		if w.key != key {
			continue
		}
		rest := append(queue[:i:i], queue[i+1:]...)
		s.setQueue(tenant, rest)
		if len(rest) == 0 {
			for j, name := range s.turns {
				if name == tenant {
					s.turns = append(s.turns[:j:j], s.turns[j+1:]...)
					break
				}
			}
		}
		return false
	}
	return false
}

// depth is how many calls wait for a slot.
func (s *slots) depth() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, queue := range s.waiting {
		n += len(queue)
	}
	return n
}
