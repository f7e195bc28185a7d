package store

import (
	"log/slog"
	"slices"
	"sync"
)

// subscriptions makes the subscribers of a store: cursors, and drainers around them. The writer lock guards
// the list of the cursors and the timer of resyncs.
type subscriptions struct {
	pub       *publisher
	ledger    *ledger
	coverages coverages
	logger    *slog.Logger

	cursors    []*Cursor // append-only or replaced: a copy taken under the lock may be read without it
	buffers    sync.Pool // of *buffers
	resync     resyncTimer
	goroutines drainGoroutines
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
		c.echo = &echoFilter{
			ledger: s.ledger, owner: c.opt.HoldWrites, deletes: c.opt.HoldDeletes, primaryOf: c.opt.PrimaryOf,
			logger: s.logger, name: c.opt.Name, keys: map[Key]*held{},
		}
	}
	s.pub.lock()
	defer s.pub.unlock()
	c.pos = s.pub.end()
	c.read.Store(c.pos.seq)
	c.settled.Store(c.pos.seq)
	c.synced = s.pub.isSynced()
	if c.opt.From == FromSnapshot {
		c.initial = &initial{s.pub.current().base.objects.Iterate(), s.coverages.quarantined()}
	}
	if s.pub.isClosed() {
		c.closed.Store(true)
		return
	}
	s.cursors = append(s.cursors, c)
	s.resync.start(c.opt.Resync, s.tick)
}

// list returns the present cursors. The caller must not change the slice.
func (s *subscriptions) list() []*Cursor {
	s.pub.lock()
	defer s.pub.unlock()
	return s.cursors
}

// remove removes a cursor that is closed.
func (s *subscriptions) remove(c *Cursor) {
	s.pub.lock()
	defer s.pub.unlock()
	if i := slices.Index(s.cursors, c); i >= 0 {
		s.cursors = slices.Delete(slices.Clone(s.cursors), i, i+1)
	}
}

// isIdle implements follower.
func (s *subscriptions) isIdle() bool { return len(s.cursors) == 0 }

// appended implements follower. It folds the changes that slow cursors have not read.
func (s *subscriptions) appended(from, to uint64) (wake func()) {
	cursors := s.cursors
	if to/chunkLen != from/chunkLen {
		for _, c := range cursors {
			if read := c.read.Load(); to-read > maxLag+(to-from) {
				c.fold(maxLag / 2)
			}
		}
	}
	return func() {
		for _, c := range cursors {
			c.wake()
		}
	}
}

// judged implements echoReaders.
func (s *subscriptions) judged() map[string]uint64 {
	lowest := map[string]uint64{}
	for _, c := range s.cursors {
		if c.echo == nil {
			continue
		}
		owner, upTo := c.opt.HoldWrites, c.settled.Load()
		if at, ok := lowest[owner]; !ok || upTo < at {
			lowest[owner] = upTo
		}
	}
	return lowest
}

// answered implements echoReaders.
func (s *subscriptions) answered(owner string) {
	for _, c := range s.list() {
		if c.opt.HoldWrites == owner {
			c.wake()
		}
	}
}

// tick wakes the cursors that want a resync.
func (s *subscriptions) tick(armed uint64) {
	s.pub.lock()
	cursors := s.cursors
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

// close ends all subscriptions. The caller holds the writer lock, and calls end after releasing it.
func (s *subscriptions) close() (end func()) {
	cursors := s.cursors
	s.cursors = nil
	s.resync.stop()
	return func() {
		for _, c := range cursors {
			c.end()
		}
		s.goroutines.close()
		s.resync.wait()
	}
}

// version returns the version up to which all changes are known.
func (s *subscriptions) version() string {
	s.pub.lock()
	defer s.pub.unlock()
	return s.coverages.version()
}
