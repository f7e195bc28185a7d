package webhook

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// turns share processor time between namespaces: what their definitions have us compile, render, parse, mask and judge.
// At most as many at a time as there are places, and the next one is of the namespace that has had the least time.
// There are no goroutines in here: who asks waits, and works itself.
type turns struct {
	most int // places

	mu     sync.Mutex
	free   int
	queued int // who waits
	shares map[string]*share
	now    time.Duration // what the namespace had that was served last: who comes anew begins there
}

// share is what one namespace waits for and has had.
type share struct {
	had     time.Duration // time of its work, and what it has missed by not being there
	working int
	waiting list.List // of *turnWait
}

// turnWait is somebody who waits for some places, all at once.
type turnWait struct {
	turn   chan struct{} // closed when it is his turn
	places int
}

func newTurns(places int) *turns {
	return &turns{most: places, free: places, shares: make(map[string]*share)}
}

// do runs f when it is the turn of the namespace, in this goroutine. It fails with the cause of ctx if that ends
// before.
func (t *turns) do(ctx context.Context, namespace string, f func()) error {
	return t.doIn(ctx, namespace, 1, f)
}

// doAlone is do while nobody else has a turn. It counts as what it takes: all places.
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
		s.had = max(s.had, t.now) // what was not used is not saved up
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
	case <-w.turn: // it came at the same moment, and goes to the next
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

// next gives free places to the namespace that has had the least, and forgets those that have nothing here any more. If
// it wants more than are free, the others wait with it.
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
