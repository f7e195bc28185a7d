package source

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// listing is a replacement in progress and the facts collected about it.
type listing struct {
	Replacement
	listOf
	only      *snapshot // namespaces listed of the gained slots; nil: all of them
	count     int       // objects listed, including those of slots that are not held
	promised  int       // expected number of objects by the first page; 0 if only some slots are listed
	opened    bool      // the response has begun
	gap       bool      // one of several pages was empty
	nameless  int       // unreadable items without a name
	version   string
	confirms  *confirmation // result of the first list if this one confirms it
	committed bool
}

// replace begins a replacement in the sink: of the gained slots, or of everything.
func (s *scope) replace(of listOf, confirms *confirmation) *listing {
	if of.gained != nil {
		return &listing{Replacement: s.sink.(Sharded).Gain(*of.gained), confirms: confirms, listOf: of}
	}
	s.unread, s.unreadErr = 0, nil
	return &listing{Replacement: s.sink.Replace(), confirms: confirms, listOf: of}
}

// close aborts the replacement unless it was committed.
func (l *listing) close() {
	if !l.committed {
		l.Abort()
	}
}

// confirmation is the error of a list that must be confirmed by a second one because it would delete too many objects.
type confirmation struct{ missing, known, listed int }

func (c *confirmation) Error() string {
	return fmt.Sprintf("list of %d objects lacks %d of %d known ones: %v", c.listed, c.missing, c.known, ErrImplausible)
}

func (c *confirmation) Unwrap() error { return ErrImplausible }

// accept commits a complete list if it passes the checks for stale and implausible content.
func (s *scope) accept(ctx context.Context, l *listing) error {
	if l.gained != nil {
		return s.acceptGained(l)
	}
	epoch := false
	if resourceversion.Older(l.version, s.seen) {
		if !l.consistent {
			return fmt.Errorf("list at version %s, known is %s: %w", l.version, s.seen, ErrStale)
		}
		// This is the second of two consistent reads. A single one may come from a lagging replica.
		second, err := s.probe(ctx, true)
		if err != nil {
			return err
		}
		if !resourceversion.Older(second, s.seen) || resourceversion.Older(second, l.version) {
			return fmt.Errorf("list at version %s, known is %s, then %s: %w", l.version, s.seen, second, ErrStale)
		}
		epoch = true
	}
	if c := s.doubt(l); c != nil {
		return c
	}
	reason := string(s.history.reason)
	if epoch {
		reason = fmt.Sprintf("history was rolled back from version %s to %s", s.seen, l.version)
		s.log.WarnContext(ctx, "history was rolled back", "from", string(s.seen), "to", l.version)
		s.count.Epochs++
	}
	l.committed = true
	s.everything = l.count
	s.see(l.version)
	s.commit(l, Commit{Version: l.version, Epoch: epoch, Reason: reason})
	return nil
}

// commit commits the list and marks the scope as synced.
func (s *scope) commit(l *listing, c Commit) {
	l.Replacement.Commit(c)
	s.count.Lists++
	s.kind = cmp.Or(s.kind, s.guess)
	s.pending = ""
	s.recent.reset(c.Version)
	s.synced()
	s.contact()
}

// doubt returns a confirmation if the list needs a second one before it is committed, else nil.
func (s *scope) doubt(l *listing) *confirmation {
	missing, known := l.Missing()
	guard := s.src.cfg.BulkDeleteGuard
	empty := l.count == 0 && known > 0 && !s.src.cfg.TrustEmptyList
	many := guard > 0 && missing > guard
	// With a selector the server reports no remaining item count, and an empty last page may be correct. The case is rare
	// enough to list again, even if no known object is missing: there may be more objects.
	short := l.count < l.promised && !s.estimates || l.gap
	hidden := l.nameless > 0 && missing > 0 // a missing object may be an unreadable one
	if !empty && !many && !short && !hidden {
		return nil
	}
	// A list with an empty page may lack objects that the first list had. If it is the shorter one, it confirms nothing.
	shorter := (empty || short) && l.confirms != nil && l.count < l.confirms.listed
	if c := l.confirms; c != nil && missing <= c.missing+max(guard, 0) && !shorter {
		s.estimates = s.estimates || l.count < l.promised // its remaining item counts are estimates, as the API allows
		return nil
	}
	return &confirmation{missing: missing, known: known, listed: l.count}
}
