package dependent

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// conclude sets the status of each node.
func conclude(all states) {
	for _, s := range all {
		s.status = statusOf(s)
	}
}

func statusOf(s *state) NodeStatus {
	st := NodeStatus{Name: s.name, Children: s.present, Err: s.err, Unknown: s.wanted && s.unknown()}
	var why []string
	for _, w := range s.wants {
		switch {
		case w.err != nil:
			st.Err = errors.Join(st.Err, w.err)
		case w.ready:
			st.Ready++
		case w.why != "":
			why = append(why, w.key.Name+": "+w.why)
		}
	}
	if s.external != nil {
		return externalStatus(s, st)
	}
	switch {
	case st.Err != nil:
		st.State, st.Message = StateFailed, st.Err.Error()
	case s.unwanted() && s.present > 0:
		st.State, st.Message = StateRemoving, "its children are being deleted"
	case s.unwanted():
		st.State = StateAbsent
	case s.leftOut():
		st.State, st.Message = StateAbsent, "it is not available: "+s.lacks
	case !s.decided || s.hidden || len(s.blocked) > 0 && s.present == 0:
		st.State, st.Message = StateWaiting, waitsFor(s.blocked)
	case len(why) > 0:
		st.State, st.Message = StateProgressing, strings.Join(why, "; ")
	default:
		st.State = StateReady
	}
	return st
}

// externalStatus completes the status of a node with an external resource.
func externalStatus(s *state, st NodeStatus) NodeStatus {
	if s.slot {
		st.Children = 1
	}
	switch {
	case s.err != nil:
		st.State, st.Message = StateFailed, s.err.Error()
	case s.unwanted() && st.Children > 0:
		st.State, st.Message = StateRemoving, "it is being released"
	case s.unwanted():
		st.State = StateAbsent
	case len(s.blocked) > 0 || !s.decided:
		st.State, st.Message = StateWaiting, waitsFor(s.blocked)
	case s.status.State == StateReady:
		st.State, st.Ready = StateReady, 1
	default:
		st.State, st.Message = StateProgressing, "it is not ready"
	}
	return st
}

// failures returns the errors of a round, except those that are only waited for. stale are those of deletions.
func failures(all states, stale []error) error {
	errs := slices.Clone(stale)
	for _, s := range all {
		if !errors.Is(s.err, ErrNotReady) { // waited for, not retried
			errs = append(errs, s.err)
		}
		for _, w := range s.wants {
			if !errors.Is(w.err, ErrContended) && !errors.Is(w.err, ErrNotReady) {
				errs = append(errs, w.err)
			}
		}
	}
	return errors.Join(errs...)
}

// atRest reports whether there is nothing to wait for. Otherwise, until is when to look again at the latest; zero means
// to wait for a change only.
func atRest(all states) (rest bool, until time.Time) {
	rest = true
	for _, s := range all {
		if st := s.status.State; st != StateReady && st != StateAbsent || s.leftOut() {
			rest = false
		}
		for _, w := range s.wants {
			until = sooner(until, w.until)
		}
		until = sooner(until, s.until)
	}
	return rest && until.IsZero(), until
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// isEmpty reports whether no child is left.
func isEmpty(all states) bool {
	return !slices.ContainsFunc(all, func(s *state) bool { return len(s.remaining()) > 0 || s.slot })
}

func waitsFor(nodes []string) string {
	if len(nodes) == 0 {
		return "If has not decided yet whether it is desired"
	}
	return "it waits for " + strings.Join(nodes, " and ")
}
