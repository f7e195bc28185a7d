package fair

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Semaphore bounds concurrent work, and its rate. It is fair first between groups, such as namespaces, and then between
// the members of a group. The next slot goes to the group with the fewest slots in use, and on a tie to the group that
// was served longest ago. The same order applies to the members of a group.
//
// A group may use as many slots as remain free, and a member half as many. Alone they get half of all slots and a
// third. Each further group leaves free as many slots as it takes. Therefore a group or member whose requests hang
// cannot block the others. An empty Group, or an empty Member, has no such bound.
//
// Slots is required. A Semaphore is safe for concurrent use.
type Semaphore struct {
	Slots   int
	Rate    *rate.Limiter // default: no rate limit
	Waiting int           // bounds the waiters of a group; 0: no waiting
	Wait    time.Duration // bounds the waiting time

	mu      sync.Mutex
	running int
	groups  map[string]*share
	members map[Party]*share
	waiting []*waiter // in order of arrival
	served  uint64
	wake    *time.Timer // set while the rate delays a waiter
}

// share is the state of one group or member.
type share struct {
	running, waiting int
	served           uint64 // sequence number of its last admission
}

type waiter struct {
	who           Party
	group, member *share
	decided       chan struct{} // closed on admission or refusal
	refused       *BusyError
}

// maxWaiting bounds the waiters of one Semaphore.
const maxWaiting = 1024

// BusyError means that no slot is free within Scope.
type BusyError struct{ Scope string }

// The scopes of a BusyError.
const (
	ScopeMember = "member"
	ScopeGroup  = "group"
	ScopeAll    = "all"
)

func (e *BusyError) Error() string { return fmt.Sprintf("too many at a time (%s)", e.Scope) }

// Acquire waits for a slot, which release returns. Errors: a [*BusyError]; the context's cause.
func (s *Semaphore) Acquire(ctx context.Context, who Party) (release func(), err error) {
	w := &waiter{who: who, decided: make(chan struct{})}
	s.mu.Lock()
	s.add(w)
	s.admit()
	if !w.isDecided() {
		s.makeRoom(w)
	}
	s.mu.Unlock()
	if !w.isDecided() {
		timer := time.NewTimer(s.Wait)
		defer timer.Stop()
		select {
		case <-w.decided:
		case <-timer.C:
			err = s.giveUp(w, nil)
		case <-ctx.Done():
			err = s.giveUp(w, context.Cause(ctx))
		}
	}
	switch {
	case w.refused != nil:
		return nil, w.refused
	case err != nil:
		return nil, err
	}
	return sync.OnceFunc(func() { s.release(who) }), nil
}

func (w *waiter) isDecided() bool {
	select {
	case <-w.decided:
		return true
	default:
		return false
	}
}

func (s *Semaphore) shares(who Party) (group, member *share) {
	if s.groups == nil {
		s.groups, s.members = make(map[string]*share), make(map[Party]*share)
	}
	if group = s.groups[who.Group]; group == nil {
		group = &share{}
		s.groups[who.Group] = group
	}
	if member = s.members[who]; member == nil {
		member = &share{}
		s.members[who] = member
	}
	return group, member
}

func (s *Semaphore) add(w *waiter) {
	w.group, w.member = s.shares(w.who)
	w.group.waiting++
	w.member.waiting++
	s.waiting = append(s.waiting, w)
}

// remove removes a waiter from the queue.
func (s *Semaphore) remove(w *waiter) {
	i := slices.Index(s.waiting, w)
	s.waiting = slices.Delete(s.waiting, i, i+1)
	w.group.waiting--
	w.member.waiting--
	s.forget(w.who, w.group, w.member)
}

// forget deletes unused shares.
func (s *Semaphore) forget(who Party, group, member *share) {
	if member.running+member.waiting == 0 {
		delete(s.members, who)
		if group.running+group.waiting == 0 {
			delete(s.groups, who.Group)
		}
	}
}

// admit admits waiters while slots and the rate permit.
func (s *Semaphore) admit() {
	for {
		w := s.next()
		if w == nil || !s.inTime() {
			return
		}
		s.served++
		s.running++
		for _, of := range []*share{w.group, w.member} {
			of.running++
			of.served = s.served
		}
		s.remove(w)
		close(w.decided)
	}
}

// next returns the waiter to admit next, or nil.
func (s *Semaphore) next() (first *waiter) {
	if s.running >= s.Slots {
		return nil
	}
	var best [4]uint64 // the fewest slots, then the longest time since service
	for _, w := range s.waiting {
		if s.full(w) != "" {
			continue
		}
		rank := [4]uint64{uint64(w.group.running), w.group.served, uint64(w.member.running), w.member.served}
		if first == nil || slices.Compare(rank[:], best[:]) < 0 {
			first, best = w, rank
		}
	}
	return first
}

// full returns the scope whose slots are used up, or "".
func (s *Semaphore) full(w *waiter) (scope string) {
	free := s.Slots - s.running
	switch {
	case free <= 0:
		return ScopeAll
	case w.who.Group != "" && w.group.running >= free:
		return ScopeGroup
	case w.who.Member != "" && 2*w.member.running >= free:
		return ScopeMember
	}
	return ""
}

// inTime reports whether the rate permits an admission now. Otherwise it schedules another admit.
func (s *Semaphore) inTime() bool {
	if s.Rate == nil {
		return true
	}
	turn := s.Rate.Reserve()
	wait := turn.Delay()
	if wait == 0 {
		return true
	}
	turn.Cancel()
	if s.wake == nil {
		s.wake = time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wake = nil
			s.admit()
		})
	}
	return false
}

// makeRoom refuses a waiter if the queue is full: the newcomer if its group has too many, else the last waiter of the
// largest group.
func (s *Semaphore) makeRoom(w *waiter) {
	if w.group.waiting > s.Waiting {
		s.refuse(w)
		return
	}
	if len(s.waiting) <= maxWaiting {
		return
	}
	last, most := w, w.group.waiting
	for _, other := range s.waiting { // >= finds the last waiter of a group
		if other.group.waiting >= most && other != w {
			last, most = other, other.group.waiting
		}
	}
	s.refuse(last)
}

func (s *Semaphore) refuse(w *waiter) {
	scope := s.full(w)
	if scope == "" { // the rate is used up, or other waiters are first
		scope = ScopeAll
	}
	w.refused = &BusyError{scope}
	s.remove(w)
	close(w.decided)
}

// giveUp ends the wait of w with err. A nil err means that the wait took too long.
func (s *Semaphore) giveUp(w *waiter, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.isDecided() { // admitted or refused meanwhile
		if w.refused == nil && err != nil {
			s.releaseLocked(w.who)
			return err
		}
		return nil
	}
	if err == nil {
		s.refuse(w)
		return nil
	}
	s.remove(w)
	return err
}

func (s *Semaphore) release(who Party) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(who)
}

func (s *Semaphore) releaseLocked(who Party) {
	group, member := s.shares(who)
	s.running--
	group.running--
	member.running--
	s.forget(who, group, member)
	s.admit()
}

// InUse returns the number of slots in use.
func (s *Semaphore) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}
