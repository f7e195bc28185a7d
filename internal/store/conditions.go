package store

import (
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/source"
)

// Statuses returns the status of each scope, ordered by namespace. For a store of a Cache, contact times, version and
// counters are current. For other stores they are those of the last change of status.
func (s *Store) Statuses() []source.Status {
	live := map[string]source.Status{}
	if from := s.live.Load(); from != nil {
		for _, st := range (*from).Status() {
			live[st.Namespace] = st
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]source.Status, 0, len(s.scopes))
	for ns, sc := range s.scopes {
		st := sc.status
		st.Namespace = ns
		if now, ok := live[ns]; ok {
			st.LastContact, st.LastRefusal, st.Next = now.LastContact, now.LastRefusal, now.Next
			st.Version, st.Counters = now.Version, now.Counters
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b source.Status) int { return strings.Compare(a.Namespace, b.Namespace) })
	return out
}

// Unlisted returns a message for each scope that has not been listed completely, with the server's reason if it is
// known: "configmaps in team-a with labels app=web: not listed yet: Forbidden: …". It is empty once HasSynced is true.
func (s *Store) Unlisted() []string {
	if s.HasSynced() {
		return nil
	}
	return unlisted(&s.opt, s.Statuses())
}

// unlisted is Store.Unlisted for a store that is not synced.
func unlisted(opt *Options, statuses []source.Status) []string {
	var out []string
	for _, st := range statuses {
		if st.Synced {
			continue
		}
		where := opt.resource()
		if st.Namespace != "" {
			where += " in " + st.Namespace
		}
		if with := opt.selectors(); with != "" {
			where += " with " + with
		}
		why := "not listed yet"
		if st.Phase == source.Degraded {
			why += ": " + string(st.Reason)
		}
		if st.Message != "" {
			why += ": " + st.Message
		}
		out = append(out, where+": "+why)
	}
	if len(out) == 0 {
		out = append(out, opt.resource()+": not listed yet")
	}
	slices.Sort(out)
	return out
}

// WatchStatus returns a watch of the statuses. The present statuses come first. Close the watch after use.
func (s *Store) WatchStatus() *StatusWatch {
	s.mu.Lock()
	defer s.mu.Unlock() // no change may come in between
	var present []source.Status
	for _, sc := range s.scopes {
		if sc.status.Phase != "" {
			present = append(present, sc.status)
		}
	}
	return s.status.watch(present)
}

// Report implements source.Sink.
func (sc *scope) Report(st source.Status) {
	s := sc.s
	s.mu.Lock()
	st.Namespace = sc.ns
	sc.status = st
	sc.resuming = sc.resuming && !st.Synced
	if err := sc.refusal(); err != nil {
		s.waiters.end(err, func(w *waiter) bool { return w.barrier && w.concerns(sc) })
	}
	wake := func() {}
	if !sc.dropped {
		s.status.send(st)
		if batch := s.checkSynced(); batch != nil {
			wake = s.publish(*s.root.Load(), batch)
		}
	}
	s.mu.Unlock()
	wake()
}

// checkSynced returns the Synced note when the store has just become synced. The caller holds s.mu and publishes the
// note.
func (s *Store) checkSynced() (batch []change) {
	if s.synced || len(s.scopes) == 0 {
		return nil
	}
	some := false
	for _, sc := range s.scopes {
		complete := (sc.committed || sc.vacant()) && !sc.resuming
		some = some || complete
		if !complete && !sc.refused() {
			return nil
		}
	}
	if !some {
		return nil
	}
	s.synced = true
	return []change{{typ: Synced, note: &note{version: s.scopes.version()}}}
}

// HasSynced reports whether every scope that the server does not refuse to list has been listed once.
func (s *Store) HasSynced() bool {
	select {
	case <-s.isReady:
		return true
	default:
		return false
	}
}

// Synced returns a channel that is closed when HasSynced becomes true.
func (s *Store) Synced() <-chan struct{} { return s.isReady }
