package source

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// listing is a replacement under way and what has been learnt about it.
type listing struct {
	Replacement
	listOf
	only      *snapshot // what is listed of the slots that have come; nil: all of them
	count     int       // objects listed, also of slots that are not held
	promised  int       // objects there should be, by what the first page said; 0 of a list of some slots
	opened    bool      // the answer has begun
	gap       bool      // one of several pages was empty
	nameless  int       // items that cannot be read and do not tell of which object they are
	version   string
	confirms  *confirmation // the list before, if this one is to confirm it
	committed bool
}

// replace begins a list.
func (s *scope) replace(of listOf, confirms *confirmation) *listing {
	if of.gained != nil {
		return &listing{Replacement: s.sink.(Sharded).Gain(*of.gained), confirms: confirms, listOf: of}
	}
	s.unread, s.unreadErr = 0, nil
	return &listing{Replacement: s.sink.Replace(), confirms: confirms, listOf: of}
}

// close forgets what was staged, unless it was committed.
func (l *listing) close() {
	if !l.committed {
		l.Abort()
	}
}

// confirmation asks for a second list, since the first would delete so much.
type confirmation struct{ missing, known, listed int }

func (c *confirmation) Error() string {
	return fmt.Sprintf("list of %d objects misses %d of %d known ones: %v", c.listed, c.missing, c.known, ErrImplausible)
}

func (c *confirmation) Unwrap() error { return ErrImplausible }

// accept applies a complete list, if it is to be believed.
func (s *scope) accept(ctx context.Context, l *listing) error {
	if l.gained != nil {
		return s.acceptGained(l)
	}
	epoch := false
	if resourceversion.Older(l.version, s.seen) {
		if !l.consistent {
			return fmt.Errorf("list at version %s, known is %s: %w", l.version, s.seen, ErrStale)
		}
		// The second of two consistent reads; one alone may come from a replica that lags behind.
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

// commit applies the list and notes that it is done.
func (s *scope) commit(l *listing, c Commit) {
	l.Replacement.Commit(c)
	s.count.Lists++
	s.kind = cmp.Or(s.kind, s.guess)
	s.pending = ""
	s.recent.reset(c.Version)
	s.synced()
	s.contact()
}

// doubt says whether a list needs a second one before it is believed.
func (s *scope) doubt(l *listing) *confirmation {
	missing, known := l.Missing()
	guard := s.src.cfg.BulkDeleteGuard
	empty := l.count == 0 && known > 0 && !s.src.cfg.TrustEmptyList
	many := guard > 0 && missing > guard
	// With a selector no page promises anything, and an empty last page may be right; it is rare enough to ask again, even
	// when nothing is missing of what is known: there may be more.
	short := l.count < l.promised && !s.estimates || l.gap
	hidden := l.nameless > 0 && missing > 0 // what is missing may be what could not be read
	if !empty && !many && !short && !hidden {
		return nil
	}
	if c := l.confirms; c != nil && missing <= c.missing+max(guard, 0) {
		s.estimates = s.estimates || l.count < l.promised // its promises are not exact, as the API allows
		return nil
	}
	return &confirmation{missing: missing, known: known, listed: l.count}
}
