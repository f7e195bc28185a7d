package store

import (
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/why"
)

// The methods of this file take snapshots of the parts of a store. Functions beside them (explain, metrics) turn the
// snapshots into causes and metrics.

// Stats returns the statistics of the store.
func (s *Store) Stats() Stats {
	out := Stats{
		Objects: s.Len(), Applied: s.intake.stats.applied.Load(), Suppressed: s.intake.stats.suppressed.Load(),
		Commits: s.intake.stats.commits.Load(), Mutations: s.Mutations(), Overlay: s.OverlayStats(),
		Quarantined: s.intake.stats.quarantined.Load() + s.codec.undecoded.counted(), Memory: s.MemoryStats(),
	}
	cursors := s.subscriptions.list()
	out.Subscribers = len(cursors)
	for _, c := range cursors {
		out.MaxLag = max(out.MaxLag, c.Lag())
	}
	return out
}

// MemoryStats returns the memory of the encoded objects.
func (s *Store) MemoryStats() MemoryStats { return MemoryStats(s.codec.pack.Stats()) }

// Mutations returns the number of shared objects that were found changed (Options.DetectMutation).
func (s *Store) Mutations() int64 { return s.codec.mutations.count.Load() }

// Why returns the reasons why the stored state of an object may be old: it cannot be read, or the source has not listed
// yet or has lost contact. It returns none for an object that is not selected; see Excludes.
func (s *Store) Why(k Key) []why.Cause {
	ns, unread, watched := s.intake.coverageOf(k)
	if !watched {
		return nil
	}
	statuses := slices.DeleteFunc(s.Statuses(), func(st source.Status) bool { return st.Namespace != ns })
	return causesOf(&s.opt, unread, statuses, time.Now())
}

// Excludes returns a cause NotSelected if the store would not hold an object of these labels in this namespace, which
// it may not watch. excluded is false if no known restriction applies. Field selectors count as a restriction, although
// they are not evaluated.
func (s *Store) Excludes(namespace string, labels map[string]string) (c why.Cause, excluded bool) {
	return exclusion(&s.opt, s.currentSelector.now.Load(), s.Statuses(), namespace, labels)
}

// Unlisted returns a message for each scope that has not been listed completely, with the server's reason if it is
// known: "configmaps in team-a with labels app=web: not listed yet: Forbidden: …". It is empty once HasSynced is true.
func (s *Store) Unlisted() []string {
	if s.HasSynced() {
		return nil
	}
	return unlisted(&s.opt, s.Statuses())
}

// Undecoded returns objects of the store that could not be decoded as the Go type that a reader asked for, at most the
// last 1,000. Other readers may be able to decode them. They count in Stats.Quarantined, each version once while it is
// remembered.
func (s *Store) Undecoded() []source.Quarantined { return s.codec.undecoded.current(s.Get) }
