package dependent

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/client"
)

// conclude computes the status of each node.
func (r *round) conclude() {
	for _, s := range r.states {
		s.status = s.conclude(r)
	}
}

func (s *state) conclude(r *round) NodeStatus {
	st := NodeStatus{Name: s.name, Children: s.present, Err: s.err, Unknown: s.wanted && s.unknown(r)}
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
		return s.concludeOutside(r, st)
	}
	switch {
	case st.Err != nil:
		st.State, st.Message = StateFailed, st.Err.Error()
	case s.decided && !s.wanted && s.present > 0:
		st.State, st.Message = StateRemoving, "its children are being deleted"
	case s.decided && !s.wanted:
		st.State = StateAbsent
	case !s.decided || s.hidden || len(s.blocked) > 0 && s.present == 0:
		st.State, st.Message = StateWaiting, waitsFor(s.blocked)
	case len(why) > 0:
		st.State, st.Message = StateProgressing, strings.Join(why, "; ")
	default:
		st.State = StateReady
	}
	return st
}

// errs returns the errors of a round, except those that are only waited for.
func (r *round) errs() error {
	errs := slices.Clone(r.stale)
	for _, s := range r.states {
		errs = append(errs, s.err)
		for _, w := range s.wants {
			if !errors.Is(w.err, ErrContended) && !errors.Is(w.err, ErrNotReady) { // waited for, not retried
				errs = append(errs, w.err)
			}
		}
	}
	return errors.Join(errs...)
}

// rest reports whether there is nothing to wait for. Otherwise, until is when to look again at the latest; zero means
// to wait for a change only.
func (r *round) rest() (atRest bool, until time.Time) {
	atRest = true
	for _, s := range r.states {
		if st := s.status.State; st != StateReady && st != StateAbsent {
			atRest = false
		}
		for _, w := range s.wants {
			until = sooner(until, w.until)
		}
		until = sooner(until, s.until)
	}
	return atRest && until.IsZero(), until
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// empty reports whether no child is left.
func (r *round) empty() bool {
	return !slices.ContainsFunc(r.states, func(s *state) bool { return len(s.left(r)) > 0 || s.held(r) })
}

// left returns the children of a node that do not count as deleted.
func (s *state) left(r *round) (all []client.Object) {
	for _, obj := range s.ours {
		if !r.isDeleted(s, obj) {
			all = append(all, obj)
		}
	}
	return all
}

func waitsFor(nodes []string) string {
	if len(nodes) == 0 {
		return "If has not decided yet whether it is desired"
	}
	return "it waits for " + strings.Join(nodes, " and ")
}
