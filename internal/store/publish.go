package store

// publish makes next visible, then appends the changes that led to it to the log. The caller holds s.mu, and calls wake
// after releasing it.
func (s *Store) publish(next root, batch []change) (wake func()) {
	next.seq = s.changes.seq + uint64(len(batch))
	s.seq.Store(next.seq) // first, so that no reader is ever ahead of it
	s.root.Store(&next)
	if s.synced && !s.announced { // after the root: a waiter finds the listed objects
		s.announced = true
		close(s.isReady)
	}
	if len(batch) == 0 {
		return func() {}
	}
	if len(s.cursors) == 0 {
		s.changes.seq = next.seq // no reader; later cursors start at the end
		return func() {}
	}
	before := s.changes.seq / chunkLen
	s.changes.append(batch)
	cursors := s.cursors
	if s.changes.seq/chunkLen != before {
		for _, c := range cursors {
			if read := c.read.Load(); s.changes.seq-read > maxLag+uint64(len(batch)) {
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

// editBoth publishes edited copies of the base and the merged state. While both are the same, it edits one copy. The
// caller holds s.mu.
func (s *Store) editBoth(edit func(*state)) {
	cur := s.root.Load()
	next := root{base: cur.base.copy()}
	edit(next.base)
	next.merged = next.base
	if cur.merged != cur.base {
		next.merged = cur.merged.copy()
		edit(next.merged)
	}
	s.publish(next, nil)
}

func (s *Store) indexDefs() []*indexDef {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.defs
}
