package store

import (
	"io"

	"github.com/fairlead-io/fairlead/internal/savefile"
	"github.com/fairlead-io/fairlead/internal/source"
)

// MaxLag is the lag at which a cursor is folded.
const MaxLag = maxLag

// Fold makes a cursor slow. It folds the pending events per key, down to left entries of the log.
func Fold(c *Cursor, left uint64) { c.fold(left) }

// Backlog returns how many log entries, and how many folded keys, are pending for a cursor.
func Backlog(c *Cursor) (entries, folded int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for p := c.pos; p.next() != nil; {
		n++
	}
	return n, c.late.len()
}

// Begin wakes a drainer that has an owner. It reports whether that started a goroutine.
func Begin(d *Drainer) bool { return d.begin() }

// LedgerSize returns how many own writes the ledger remembers.
func LedgerSize(s *Store) (n int) {
	s.ownWrites.ledger.mu.Lock()
	defer s.ownWrites.ledger.mu.Unlock()
	for _, w := range s.ownWrites.ledger.windows {
		n += len(w.own) + len(w.sent)
	}
	return n
}

// Break makes a store panic at the next change.
func Break(s *Store) { s.codec.intern = nil }

// Hot returns how many objects the hot set holds, and their estimated size.
func Hot(s *Store) (entries int, bytes int64) {
	s.codec.hot.mu.Lock()
	defer s.codec.hot.mu.Unlock()
	return s.codec.hot.held.len(), s.codec.hot.held.bytes
}

// Locked reports whether the writer's lock is held, even by the caller.
func Locked(s *Store) bool {
	if !s.publisher.mu.TryLock() {
		return true
	}
	s.publisher.mu.Unlock()
	return false
}

// HotLocked reports whether the lock of the hot set is held, even by the caller.
func HotLocked(s *Store) bool {
	if !s.codec.hot.mu.TryLock() {
		return true
	}
	s.codec.hot.mu.Unlock()
	return false
}

// IsHot reports whether an object is in the hot set.
func IsHot(s *Store, k Key) bool {
	r, ok := s.Get(k)
	if !ok {
		return false
	}
	for v := r.forms.list(); v != nil; v = v.next {
		if v.obj != nil {
			return true
		}
	}
	return false
}

// ReadSaved decodes a saved state.
func ReadSaved(r io.Reader, identity string) error {
	return saveFormat(identity).Decode(r, func(in *savefile.Decoder) error {
		return decodeScopes(in, func(savedScope) func(*source.Object) error {
			return func(*source.Object) error { return nil }
		})
	})
}

// HasFacets reports whether labels are found by their facets.
func HasFacets(s *Store) bool {
	x := s.publisher.current().base.facets[byLabel]
	return x != nil && !x.building
}

// FileName returns the name of the file that a store is saved in.
func FileName(s *Store) string { return s.opt.fileName() }

// MaxListed bounds ListedRecords.
const MaxListed = maxListed

// ListedRecords returns the number of records in the lists of the buckets of a store.
func ListedRecords(s *Store) int {
	s.indexer.lists.mu.Lock()
	defer s.indexer.lists.mu.Unlock()
	return s.indexer.lists.size
}
