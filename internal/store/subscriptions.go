package store

import (
	"log/slog"
	"slices"
	"sync"
)

// subscriptions makes the subscribers of a store: cursors, and drainers around them. The list of the cursors belongs to
// the publisher, which wakes them. The writer lock guards the timer of resyncs.
type subscriptions struct {
	pub       *publisher
	ledger    *ledger
	coverages coverages
	logger    *slog.Logger

	buffers sync.Pool // of *buffers
	resync  resyncTimer
}

func (s *subscriptions) init(pub *publisher, l *ledger, scopes coverages, logger *slog.Logger) {
	s.pub, s.ledger, s.coverages, s.logger = pub, l, scopes, logger
	s.buffers.New = func() any { return new(buffers) }
}

// Subscribe adds a subscriber. It can be called at any time. Between the initial objects, including quarantined ones,
// and the later changes there is no gap and no duplicate. Close the cursor after use.
func (s *subscriptions) Subscribe(opt SubscribeOptions) *Cursor {
	c := &Cursor{opt: opt}
	s.subscribe(c)
	return c
}

// subscribe adds a cursor whose options are set.
func (s *subscriptions) subscribe(c *Cursor) {
	c.s = s
	if c.opt.HoldWrites != "" {
		c.hold = &holding{keys: map[Key]*held{}}
	}
	s.pub.lock()
	defer s.pub.unlock()
	c.pos = s.pub.end()
	c.read.Store(c.pos.seq)
	c.settled.Store(c.pos.seq)
	c.synced = s.pub.synced
	if c.opt.From == FromSnapshot {
		c.initial = &initial{s.pub.current().base.objects.Iterate(), s.coverages.quarantined()}
	}
	if s.pub.closed {
		c.closed.Store(true)
		return
	}
	s.pub.cursors = append(s.pub.cursors, c)
	s.resync.start(c.opt.Resync, s.tick)
}

// tick wakes the cursors that want a resync.
func (s *subscriptions) tick(armed uint64) {
	s.pub.lock()
	cursors := s.pub.cursors
	if s.resync.isCurrent(armed) {
		s.resync.timer = nil
		if slices.ContainsFunc(cursors, (*Cursor).wantsResync) {
			s.resync.arm(s.tick)
		}
	}
	s.pub.unlock()
	for _, c := range cursors {
		if c.wantsResync() {
			c.wake()
		}
	}
}

// stop ends resyncs. The caller holds the writer lock, and calls wait after releasing it.
func (s *subscriptions) stop() { s.resync.stop() }

// wait waits for a running tick.
func (s *subscriptions) wait() { s.resync.wait() }

// version returns the version up to which all changes are known.
func (s *subscriptions) version() string {
	s.pub.lock()
	defer s.pub.unlock()
	return s.coverages.version()
}
