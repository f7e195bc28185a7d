package apiserver

import (
	"context"
	"fmt"
	"sync"
)

// Gate holds requests or answers until it is opened; see HoldRequest and HoldResponse. It is safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	waiting int
	opened  chan struct{}
	changed chan struct{}
}

// NewGate returns a closed gate.
func NewGate() *Gate { return &Gate{opened: make(chan struct{}), changed: make(chan struct{})} }

// Open opens the gate permanently.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// Wait waits until at least n requests or answers are held at the gate.
func (g *Gate) Wait(ctx context.Context, n int) error {
	for {
		g.mu.Lock()
		waiting, changed := g.waiting, g.changed
		g.mu.Unlock()
		if waiting >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for %d at the gate, %d are there: %w", n, waiting, context.Cause(ctx))
		}
	}
}

func (g *Gate) count(delta int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting += delta
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *Gate) pass(ctx context.Context) {
	g.count(1)
	defer g.count(-1)
	select {
	case <-g.opened:
	case <-ctx.Done():
	}
}

// Hold holds back the events of matching watches: writes are answered and stored, but these watches do not send them
// yet. It is safe for concurrent use.
type Hold struct {
	server *Server
	match  Match
	allow  int // total of events that each watch may send
}

// HoldEvents holds back events and bookmarks of all present and future watches that match. Several holds combine: a
// watch continues when no hold applies to it.
func (s *Server) HoldEvents(m Match) *Hold {
	h := &Hold{server: s, match: m}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = append(s.holds, h)
	s.holdCount.Add(1)
	s.holdsChangedLocked()
	return h
}

// Release ends the hold. The watches send the held events in order.
func (h *Hold) Release() {
	s := h.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.holds {
		if other == h {
			s.holds = append(s.holds[:i:i], s.holds[i+1:]...)
			s.holdCount.Add(-1)
		}
	}
	s.holdsChangedLocked()
}

// Allow lets each watch send n more events while the hold continues.
func (h *Hold) Allow(n int) {
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	h.allow += n
	h.server.holdsChangedLocked()
}

func (s *Server) holdsChangedLocked() {
	close(s.holdsChanged)
	s.holdsChanged = make(chan struct{})
}

// mayPass reports whether the watch may send one event now. If not, the channel is closed when the answer may have
// changed. passed counts the events that the watch has sent under each hold; peek does not count.
func (s *Server) mayPass(req *Request, passed map[*Hold]int, peek bool) (bool, <-chan struct{}) {
	if s.holdCount.Load() == 0 {
		return true, nil
	}
	s.mu.Lock()
	holds, changed := append([]*Hold(nil), s.holds...), s.holdsChanged
	allow := make([]int, len(holds))
	for i, h := range holds {
		allow[i] = h.allow
	}
	s.mu.Unlock()
	var matching []*Hold
	for i, h := range holds {
		if h.match.matches(req) {
			if peek || passed[h] >= allow[i] {
				return false, changed
			}
			matching = append(matching, h)
		}
	}
	for _, h := range matching {
		passed[h]++
	}
	return true, nil
}
