package share

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Turnstile is a fair semaphore with an optional rate. It is fair first between groups, such as namespaces, then
// between the callers of a group. The next slot goes to the group with the fewest slots in use, and on a tie to the
// group that was served longest ago. The same order applies to the callers of a group.
//
// A group may use as many slots as remain free, and a caller half as many. Alone they get half of all slots and a
// third. Each further group leaves free as many slots as it takes. Therefore one group or caller whose requests hang
// cannot block the others.
//
// A Visitor without a group has no group bound, and one without a caller has no caller bound.
type Turnstile struct {
	Places   int
	Rate     *rate.Limiter // default: no rate limit
	Queue    int           // waiting visitors per group; 0: no waiting
	Patience time.Duration // bound of the waiting time

	mu      sync.Mutex
	running int
	groups  map[string]*share
	callers map[Visitor]*share
	waiting []*waiter // in order of arrival
	served  uint64
	wake    *time.Timer // set while the rate delays a waiter
}

// Visitor is the user of a slot.
type Visitor struct{ Group, Caller string }

// share is the state of one group or caller.
type share struct {
	running, waiting int
	served           uint64 // sequence number of its last admission
}

type waiter struct {
	Visitor
	group, caller *share
	in            chan struct{} // closed on admission or refusal
	refused       *BusyError
}

// maxWaiting bounds the waiters of one Turnstile.
const maxWaiting = 1024

// BusyError means that no slot is free within Scope: the caller, the group, or all.
type BusyError struct{ Scope string }

// The scopes of a BusyError.
const (
	ScopeCaller = "caller"
	ScopeGroup  = "group"
	ScopeAll    = "all"
)

// Error names the scope.
func (e *BusyError) Error() string { return fmt.Sprintf("too many at a time (%s)", e.Scope) }

// Enter waits for a slot. The caller must call leave afterwards. Errors: a [*BusyError]; the context's cause.
func (t *Turnstile) Enter(ctx context.Context, v Visitor) (leave func(), err error) {
	w := &waiter{Visitor: v, in: make(chan struct{})}
	t.mu.Lock()
	t.add(w)
	t.admit()
	if !w.isIn() {
		t.makeRoom(w)
	}
	t.mu.Unlock()
	if !w.isIn() {
		timer := time.NewTimer(t.Patience)
		defer timer.Stop()
		select {
		case <-w.in:
		case <-timer.C:
			err = t.giveUp(w, nil)
		case <-ctx.Done():
			err = t.giveUp(w, context.Cause(ctx))
		}
	}
	switch {
	case w.refused != nil:
		return nil, w.refused
	case err != nil:
		return nil, err
	}
	return sync.OnceFunc(func() { t.leave(v) }), nil
}

func (w *waiter) isIn() bool {
	select {
	case <-w.in:
		return true
	default:
		return false
	}
}

func (t *Turnstile) shares(v Visitor) (group, caller *share) {
	if t.groups == nil {
		t.groups, t.callers = make(map[string]*share), make(map[Visitor]*share)
	}
	if group = t.groups[v.Group]; group == nil {
		group = &share{}
		t.groups[v.Group] = group
	}
	if caller = t.callers[v]; caller == nil {
		caller = &share{}
		t.callers[v] = caller
	}
	return group, caller
}

func (t *Turnstile) add(w *waiter) {
	w.group, w.caller = t.shares(w.Visitor)
	w.group.waiting++
	w.caller.waiting++
	t.waiting = append(t.waiting, w)
}

// remove removes a waiter from the queue.
func (t *Turnstile) remove(w *waiter) {
	i := slices.Index(t.waiting, w)
	t.waiting = slices.Delete(t.waiting, i, i+1)
	w.group.waiting--
	w.caller.waiting--
	t.forget(w.Visitor, w.group, w.caller)
}

// forget deletes unused shares.
func (t *Turnstile) forget(v Visitor, group, caller *share) {
	if caller.running+caller.waiting == 0 {
		delete(t.callers, v)
		if group.running+group.waiting == 0 {
			delete(t.groups, v.Group)
		}
	}
}

// admit admits waiters while slots and the rate permit.
func (t *Turnstile) admit() {
	for {
		w := t.next()
		if w == nil || !t.inTime() {
			return
		}
		t.served++
		t.running++
		for _, s := range []*share{w.group, w.caller} {
			s.running++
			s.served = t.served
		}
		t.remove(w)
		close(w.in)
	}
}

// next returns the waiter to admit next, or nil.
func (t *Turnstile) next() (first *waiter) {
	if t.running >= t.Places {
		return nil
	}
	var best [4]uint64 // the fewest slots, then the longest time since service
	for _, w := range t.waiting {
		if t.full(w) != "" {
			continue
		}
		rank := [4]uint64{uint64(w.group.running), w.group.served, uint64(w.caller.running), w.caller.served}
		if first == nil || slices.Compare(rank[:], best[:]) < 0 {
			first, best = w, rank
		}
	}
	return first
}

// full returns the scope whose slots are used up, or "".
func (t *Turnstile) full(w *waiter) (scope string) {
	free := t.Places - t.running
	switch {
	case free <= 0:
		return ScopeAll
	case w.Visitor.Group != "" && w.group.running >= free:
		return ScopeGroup
	case w.Visitor.Caller != "" && 2*w.caller.running >= free:
		return ScopeCaller
	}
	return ""
}

// inTime reports whether the rate permits an admission now. Otherwise it schedules another admit.
func (t *Turnstile) inTime() bool {
	if t.Rate == nil {
		return true
	}
	turn := t.Rate.Reserve()
	wait := turn.Delay()
	if wait == 0 {
		return true
	}
	turn.Cancel()
	if t.wake == nil {
		t.wake = time.AfterFunc(wait, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.wake = nil
			t.admit()
		})
	}
	return false
}

// makeRoom refuses a waiter if the queue is full: the newcomer if its group has too many, else the last waiter of the
// largest group.
func (t *Turnstile) makeRoom(w *waiter) {
	if w.group.waiting > t.Queue {
		t.refuse(w)
		return
	}
	if len(t.waiting) <= maxWaiting {
		return
	}
	last, most := w, w.group.waiting
	for _, other := range t.waiting { // >= finds the last waiter of a group
		if other.group.waiting >= most && other != w {
			last, most = other, other.group.waiting
		}
	}
	t.refuse(last)
}

func (t *Turnstile) refuse(w *waiter) {
	scope := t.full(w)
	if scope == "" { // the rate is used up, or other waiters are first
		scope = ScopeAll
	}
	w.refused = &BusyError{scope}
	t.remove(w)
	close(w.in)
}

// giveUp ends the wait of w with err. A nil err means that the wait took too long.
func (t *Turnstile) giveUp(w *waiter, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.isIn() { // admitted or refused meanwhile
		if w.refused == nil && err != nil {
			t.left(w.Visitor)
			return err
		}
		return nil
	}
	if err == nil {
		t.refuse(w)
		return nil
	}
	t.remove(w)
	return err
}

func (t *Turnstile) leave(v Visitor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left(v)
}

func (t *Turnstile) left(v Visitor) {
	group, caller := t.shares(v)
	t.running--
	group.running--
	caller.running--
	t.forget(v, group, caller)
	t.admit()
}

// Inside returns the number of slots in use.
func (t *Turnstile) Inside() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}
