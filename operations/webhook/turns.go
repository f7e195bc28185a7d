package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/fair"
)

// turns shares processor time for computations between namespaces. It bounds the concurrent computations to the number
// of slots. The next slot goes to the namespace that has used the least time. The waiting goroutine itself runs the
// computation; turns starts no goroutines.
type turns struct {
	most int // slots

	mu      sync.Mutex
	free    int
	waiting fair.Queue[string, turnWait] // by namespace
	shares  map[string]*share
	now     time.Duration // time of the namespace served last; new namespaces start there
}

// share is the state of one namespace.
type share struct {
	had     time.Duration // used time, plus the time it missed while it was absent
	working int
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
	if s.working == 0 && t.waiting.Line(namespace) == nil {
		s.had = max(s.had, t.now) // unused time is not saved up
	}
	if t.free >= places && t.waiting.Len() == 0 {
		t.free -= places
		s.working++
		t.mu.Unlock()
		return nil
	}
	w := t.waiting.Push(namespace, turnWait{turn: make(chan struct{}), places: places})
	t.mu.Unlock()
	select {
	case <-w.Value.turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.Queued() {
		w.Remove()
	} else { // assigned at the same moment; pass it on
		s.working--
		t.free += places
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
	if t.free == t.most && t.waiting.Len() == 0 {
		clear(t.shares)
		t.now = 0
		return
	}
	for t.free > 0 {
		line, s := t.least()
		if s == nil {
			return
		}
		w := line.First()
		if w.Value.places > t.free {
			return
		}
		t.now = max(t.now, s.had)
		t.free -= w.Value.places
		s.working++
		w.Remove()
		close(w.Value.turn)
	}
}

func (t *turns) least() (line *fair.Line[string, turnWait], least *share) {
	for namespace, s := range t.shares {
		switch waiting := t.waiting.Line(namespace); {
		case waiting != nil:
			if least == nil || s.had < least.had {
				line, least = waiting, s
			}
		case s.working == 0 && s.had <= t.now:
			delete(t.shares, namespace)
		}
	}
	return line, least
}
