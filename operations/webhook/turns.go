package webhook

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// turns shares processor time for computations between namespaces. It bounds the concurrent computations to the number
// of slots. The next slot goes to the namespace that has used the least time. The waiting goroutine itself runs the
// computation; turns starts no goroutines.
type turns struct {
	most int // slots

	mu     sync.Mutex
	free   int
	queued int // waiters
	shares map[string]*share
	now    time.Duration // time of the namespace served last; new namespaces start there
}

// share is the state of one namespace.
type share struct {
	had     time.Duration // used time, plus the time it missed while it was absent
	working int
	waiting list.List // of *turnWait
}

// turnWait is a waiter for a number of slots, all at once.
type turnWait struct {
	turn   chan struct{} // closed when the slots are assigned
	places int
}

func newTurns(places int) *turns {
	return &turns{most: places, free: places, shares: make(map[string]*share)}
}

// do runs f in this goroutine when it is the turn of the namespace. It returns the cause of ctx if ctx ends before.
func (t *turns) do(ctx context.Context, namespace string, f func()) error {
	return t.doIn(ctx, namespace, 1, f)
}

// doAlone is do with all slots, so that no other computation runs. The time counts once for each slot.
func (t *turns) doAlone(ctx context.Context, namespace string, f func()) error {
	return t.doIn(ctx, namespace, t.most, f)
}

func (t *turns) doIn(ctx context.Context, namespace string, places int, f func()) error {
	if err := t.wait(ctx, namespace, places); err != nil {
		return err
	}
	begun := time.Now()
	defer func() { t.done(namespace, places, time.Since(begun)) }()
	f()
	return nil
}

func (t *turns) wait(ctx context.Context, namespace string, places int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.mu.Lock()
	s := t.shares[namespace]
	if s == nil {
		s = &share{had: t.now}
		t.shares[namespace] = s
	}
	if s.working == 0 && s.waiting.Len() == 0 {
		s.had = max(s.had, t.now) // unused time is not saved up
	}
	if t.free >= places && t.queued == 0 {
		t.free -= places
		s.working++
		t.mu.Unlock()
		return nil
	}
	w := &turnWait{turn: make(chan struct{}), places: places}
	place := s.waiting.PushBack(w)
	t.queued++
	t.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.turn: // assigned at the same moment; pass it on
		s.working--
		t.free += places
	default:
		s.waiting.Remove(place)
		t.queued--
	}
	t.next()
	return context.Cause(ctx)
}

func (t *turns) done(namespace string, places int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.shares[namespace]
	s.had += took * time.Duration(places)
	s.working--
	t.free += places
	t.next()
}

// next assigns free slots to the namespace that has used the least time, and forgets inactive namespaces. If that
// namespace needs more slots than are free, the others wait with it.
func (t *turns) next() {
	if t.free == t.most && t.queued == 0 {
		clear(t.shares)
		t.now = 0
		return
	}
	for t.free > 0 {
		least := t.least()
		if least == nil {
			return
		}
		w := least.waiting.Front().Value.(*turnWait)
		if w.places > t.free {
			return
		}
		t.now = max(t.now, least.had)
		t.free -= w.places
		least.working++
		least.waiting.Remove(least.waiting.Front())
		t.queued--
		close(w.turn)
	}
}

func (t *turns) least() (least *share) {
	for namespace, s := range t.shares {
		switch {
		case s.waiting.Len() > 0:
			if least == nil || s.had < least.had {
				least = s
			}
		case s.working == 0 && s.had <= t.now:
			delete(t.shares, namespace)
		}
	}
	return least
}
