package webhook

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// turns share processor time between namespaces: what their definitions have us compile, render, parse, mask and judge. At most as many
// at a time as there are places, and the next one is of the namespace that has had the least time. There are no goroutines in
// here: who asks waits, and works itself.
type turns struct {
	most int // places

	mu     sync.Mutex
	free   int
	shares map[string]*share
	now    time.Duration // what the namespace had that was served last: who comes anew begins there
}

// share is what one namespace waits for and has had.
type share struct {
	had     time.Duration // time of its work, and what it has missed by not being there
	working int
	waiting list.List // of chan struct{}, closed when it is its turn
}

func newTurns(places int) *turns {
	return &turns{most: places, free: places, shares: make(map[string]*share)}
}

// do runs f when it is the turn of the namespace, in this goroutine. It fails with the cause of ctx if that ends before.
func (t *turns) do(ctx context.Context, namespace string, f func()) error {
	if err := t.wait(ctx, namespace); err != nil {
		return err
	}
	begun := time.Now()
	defer func() { t.done(namespace, time.Since(begun)) }()
	f()
	return nil
}

func (t *turns) wait(ctx context.Context, namespace string) error {
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
	if t.free > 0 { // then nobody waits
		t.free--
		s.working++
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	place := s.waiting.PushBack(turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-turn: // it came at the same moment, and goes to the next
		s.working--
		t.free++
	default:
		s.waiting.Remove(place)
	}
	t.next()
	return context.Cause(ctx)
}

func (t *turns) done(namespace string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.shares[namespace]
	s.had += took
	s.working--
	t.free++
	t.next()
}

// next gives a free place to the namespace that has had the least, and forgets those that have nothing here any more.
func (t *turns) next() {
	if t.free == t.most && !t.waited() {
		clear(t.shares)
		t.now = 0
		return
	}
	for t.free > 0 {
		least := t.least()
		if least == nil {
			return
		}
		t.now = max(t.now, least.had)
		t.free--
		least.working++
		close(least.waiting.Remove(least.waiting.Front()).(chan struct{}))
	}
}

func (t *turns) waited() bool {
	for _, s := range t.shares {
		if s.waiting.Len() > 0 {
			return true
		}
	}
	return false
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
