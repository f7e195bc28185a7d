package webhook

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// crowd bounds the number of long answers in memory. A receiver may send slowly on purpose. Therefore slots are shared
// between namespaces and can be revoked. When all are in use, the namespace with the most slots gives one up to a
// namespace with fewer. The try that held it fails with errCrowded and is retried.
type crowd struct {
	mu      sync.Mutex
	free    int
	leaving int // revoked slots that are still in use
	guests  map[string]*guest
}

// guest holds the slots and waiters of one namespace: lists of *seat in order of arrival.
type guest struct{ seated, waiting list.List }

type seat struct {
	turn  chan struct{} // closed when a slot is assigned
	leave context.CancelCauseFunc
	at    *list.Element // in one of the lists; nil: revoked
}

// errCrowded is the cause when the slot of an answer was revoked.
var errCrowded = errors.New("too many long answers of this namespace are being read")

func newCrowd(places int) *crowd { return &crowd{free: places, guests: make(map[string]*guest)} }

// enter waits for a slot until ctx ends. If the slot is revoked, leave is called with errCrowded. The slot stays in use
// until the caller calls done.
func (c *crowd) enter(ctx context.Context, namespace string, leave context.CancelCauseFunc) (done func(), err error) {
	s := &seat{turn: make(chan struct{}), leave: leave}
	c.mu.Lock()
	g := c.guests[namespace]
	if g == nil {
		g = &guest{}
		c.guests[namespace] = g
	}
	s.at = g.waiting.PushBack(s)
	c.serve()
	c.mu.Unlock()
	select {
	case <-s.turn:
		return sync.OnceFunc(func() { c.left(namespace, s) }), nil
	case <-ctx.Done():
		c.left(namespace, s)
		return nil, context.Cause(ctx)
	}
}

func (c *crowd) left(namespace string, s *seat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-s.turn:
		c.free++
	default:
	}
	g := c.guests[namespace]
	if s.at == nil {
		c.leaving--
	} else {
		g.seated.Remove(s.at) // s.at is in one list; Remove on the other is a no-op
		g.waiting.Remove(s.at)
	}
	if g != nil && g.seated.Len()+g.waiting.Len() == 0 {
		delete(c.guests, namespace)
	}
	c.serve()
}

// serve assigns free slots to the namespaces with the fewest. If more waiters remain, it revokes a slot of the
// namespace with the most.
func (c *crowd) serve() {
	for g := c.neediest(); g != nil; g = c.neediest() {
		if c.free == 0 {
			c.makeRoom(g)
			return
		}
		c.free--
		s := g.waiting.Remove(g.waiting.Front()).(*seat)
		s.at = g.seated.PushBack(s)
		close(s.turn)
	}
}

func (c *crowd) neediest() (least *guest) {
	for _, g := range c.guests {
		if g.waiting.Len() > 0 && (least == nil || g.seated.Len() < least.seated.Len()) {
			least = g
		}
	}
	return least
}

// makeRoom revokes the oldest slot of the largest namespace. It does not if a revoked slot is still in use, or if the
// exchange would only swap the two namespaces.
func (c *crowd) makeRoom(needy *guest) {
	var most *guest
	for _, g := range c.guests {
		if most == nil || g.seated.Len() > most.seated.Len() {
			most = g
		}
	}
	if c.leaving > 0 || most.seated.Len() < needy.seated.Len()+2 {
		return
	}
	s := most.seated.Remove(most.seated.Front()).(*seat)
	s.at = nil
	c.leaving++
	s.leave(errCrowded)
}
