package webhook

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// crowd bounds how many long answers are in memory. Who sends one may be slow on purpose, so that places are not only
// shared between namespaces but taken away again: when all are in use, the namespace that has the most gives one up to
// another that has less, and what was being read there is tried again.
type crowd struct {
	mu      sync.Mutex
	free    int
	leaving int // places that were taken away and are in use still
	guests  map[string]*guest
}

// guest is what one namespace has and waits for: lists of *seat, who came first is first.
type guest struct{ seated, waiting list.List }

type seat struct {
	turn  chan struct{} // closed when there is a place
	leave context.CancelCauseFunc
	at    *list.Element // of one of the lists; nil: the place was taken away
}

// errCrowded is why an answer was not read to its end.
var errCrowded = errors.New("too many long answers of this namespace are being read")

func newCrowd(places int) *crowd { return &crowd{free: places, guests: make(map[string]*guest)} }

// enter waits for a place until ctx ends. leave is called with errCrowded if the place is taken away again; it is in
// use until done was called all the same.
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
		g.seated.Remove(s.at) // it is in one of them, and the other does nothing
		g.waiting.Remove(s.at)
	}
	if g != nil && g.seated.Len()+g.waiting.Len() == 0 {
		delete(c.guests, namespace)
	}
	c.serve()
}

// serve gives the free places to those who have the least. If more is wanted, who has most gives up one.
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

// makeRoom takes one place away, the one that was given first, unless one is being left already or it would only change
// sides.
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
