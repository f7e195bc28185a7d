package httpapi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// turnstile lets a bounded number through at a time, and per second if it has a rate, and is fair: first between
// groups, such as namespaces, then between callers within one. The next one comes from the group that has the fewest
// inside, of several the one that was served least lately. However many come, a group has at most as many places as are
// left free, and a caller half as many: alone these are half of all and a third, and each further group leaves as many
// as it takes. So whoever hangs, others find a place.
//
// A visitor without a group, or a caller, shares with nobody in particular.
type turnstile struct {
	places   int
	rate     *rate.Limiter // default: any number per second
	queue    int           // how many of a group may wait; 0: nobody waits
	patience time.Duration // how long they wait

	mu      sync.Mutex
	running int
	groups  map[string]*share
	callers map[visitor]*share
	waiting []*waiter // in the order in which they came
	served  uint64
	wake    *time.Timer // for the rate, while somebody waits for it
}

type visitor struct{ group, caller string }

// share is what a group or a caller has of a turnstile.
type share struct {
	running, waiting int
	served           uint64 // when it was let in last
}

type waiter struct {
	visitor
	group, caller *share
	in            chan struct{} // closed when it is let in, or sent away
	refused       *busyError
}

// maxWaiting bounds who waits at one turnstile.
const maxWaiting = 1024

// busyError says that there is no place, and for whom: the caller, the group, or all.
type busyError struct{ scope string }

const (
	scopeCaller = "caller"
	scopeGroup  = "group"
	scopeAll    = "all"
)

func (e *busyError) Error() string { return fmt.Sprintf("too many at a time (%s)", e.scope) }

// enter returns when the visitor may go on, and what has to be called afterwards. Errors: a [*busyError]; that of the
// context.
func (t *turnstile) enter(ctx context.Context, v visitor) (leave func(), err error) {
	w := &waiter{visitor: v, in: make(chan struct{})}
	t.mu.Lock()
	t.add(w)
	t.admit()
	if !w.isIn() {
		t.makeRoom(w)
	}
	t.mu.Unlock()
	if !w.isIn() {
		timer := time.NewTimer(t.patience)
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

func (t *turnstile) shares(v visitor) (group, caller *share) {
	if t.groups == nil {
		t.groups, t.callers = make(map[string]*share), make(map[visitor]*share)
	}
	if group = t.groups[v.group]; group == nil {
		group = &share{}
		t.groups[v.group] = group
	}
	if caller = t.callers[v]; caller == nil {
		caller = &share{}
		t.callers[v] = caller
	}
	return group, caller
}

func (t *turnstile) add(w *waiter) {
	w.group, w.caller = t.shares(w.visitor)
	w.group.waiting++
	w.caller.waiting++
	t.waiting = append(t.waiting, w)
}

// remove takes a waiter out of the queue.
func (t *turnstile) remove(w *waiter) {
	i := slices.Index(t.waiting, w)
	t.waiting = slices.Delete(t.waiting, i, i+1)
	w.group.waiting--
	w.caller.waiting--
	t.forget(w.visitor, w.group, w.caller)
}

// forget drops the shares that nobody has any more.
func (t *turnstile) forget(v visitor, group, caller *share) {
	if caller.running+caller.waiting == 0 {
		delete(t.callers, v)
		if group.running+group.waiting == 0 {
			delete(t.groups, v.group)
		}
	}
}

// admit lets in whom there is place for.
func (t *turnstile) admit() {
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

// next returns who is to be let in, nil if there is nobody or no place.
func (t *turnstile) next() (first *waiter) {
	if t.running >= t.places {
		return nil
	}
	var best [4]uint64 // the fewest inside, then the longest ago
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

// full says whose places are all taken, empty if none are.
func (t *turnstile) full(w *waiter) (scope string) {
	free := t.places - t.running
	switch {
	case free <= 0:
		return scopeAll
	case w.visitor.group != "" && w.group.running >= free:
		return scopeGroup
	case w.visitor.caller != "" && 2*w.caller.running >= free:
		return scopeCaller
	}
	return ""
}

// inTime tells whether the rate lets one in now; if not, it sees to it that this is looked at again.
func (t *turnstile) inTime() bool {
	if t.rate == nil {
		return true
	}
	turn := t.rate.Reserve()
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

// makeRoom sends somebody away if one more cannot wait: the newcomer if his group has too many, else the last one of
// the group with the most.
func (t *turnstile) makeRoom(w *waiter) {
	if w.group.waiting > t.queue {
		t.refuse(w)
		return
	}
	if len(t.waiting) <= maxWaiting {
		return
	}
	last, most := w, w.group.waiting
	for _, other := range t.waiting { // the last one of a group is met last
		if other.group.waiting >= most && other != w {
			last, most = other, other.group.waiting
		}
	}
	t.refuse(last)
}

func (t *turnstile) refuse(w *waiter) {
	scope := t.full(w)
	if scope == "" { // the rate is used up, or it is others' turn
		scope = scopeAll
	}
	w.refused = &busyError{scope}
	t.remove(w)
	close(w.in)
}

// giveUp ends the waiting: with the error, or because it took too long.
func (t *turnstile) giveUp(w *waiter, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.isIn() { // meanwhile
		if w.refused == nil && err != nil {
			t.left(w.visitor)
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

func (t *turnstile) leave(v visitor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left(v)
}

func (t *turnstile) left(v visitor) {
	group, caller := t.shares(v)
	t.running--
	group.running--
	caller.running--
	t.forget(v, group, caller)
	t.admit()
}

// inside is how many are inside.
func (t *turnstile) inside() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}
