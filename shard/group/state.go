package group

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// facts are what a member knows about its group and about itself.
type facts struct {
	id     string           // of the present incarnation; "" before it has joined
	record *record          // last known one; nil: none
	errs   map[string]error // by operation: the last attempts that failed. The map is never changed in place.
	fatal  error            // it ends, or has ended, Run
	gained int              // slots gained in total
	moved  int              // slots released in total
	lost   int              // terms lost
}

// forbidden returns the recorded error for a missing permission on Leases, or nil.
func (f *facts) forbidden() error {
	for _, what := range slices.Sorted(maps.Keys(f.errs)) {
		if err := f.errs[what]; errors.Is(err, ErrForbidden) {
			return err
		}
	}
	return nil
}

// state holds the facts of a member for inspection. It is safe for concurrent use. No other lock is acquired under its
// lock.
type state struct {
	log *slog.Logger

	mu    sync.Mutex
	known facts
}

// facts returns a copy.
func (s *state) facts() facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// joined records the incarnation that is in the record of the group.
func (s *state) joined(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.id = id
}

// setRecord records the newest record of the group. It must not be changed afterwards.
func (s *state) setRecord(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.record = r
}

// fail adds an error that ends Run.
func (s *state) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.fatal = errors.Join(s.known.fatal, err)
}

// end records the error that Run returns.
func (s *state) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.fatal = err
}

// fatal returns the error that ends Run, or nil.
func (s *state) fatal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.fatal
}

// count counts a change. It reports false if the change need not be logged: a member without slots has lost its Lease
// because of a missing permission, which setError logs.
func (s *state) count(c Change) (logged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.Kind {
	case Gained:
		s.known.gained += c.Slots.Len()
	case Released:
		s.known.moved += c.Slots.Len()
	case Lost:
		s.known.lost++
		s.known.id = ""
		return !c.Slots.IsEmpty() || s.known.forbidden() == nil
	}
	return true
}

// setError records the error of an operation that is retried, or its success if err is nil. It logs changes. A missing
// permission is logged once for all operations. It stays recorded while attempts get no response, as at the end of a
// term.
func (s *state) setError(what string, err error) {
	s.mu.Lock()
	before, known := s.known.errs[what], s.known.forbidden() != nil
	if errors.Is(before, ErrForbidden) && err != nil && !isFinding(err) {
		err = before
	}
	errs := maps.Clone(s.known.errs)
	if errs == nil {
		errs = map[string]error{}
	}
	errs[what] = err
	if err == nil {
		delete(errs, what)
	}
	s.known.errs = errs
	s.mu.Unlock()
	switch {
	case errors.Is(err, ErrForbidden) && known:
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.log.Error("cannot "+what+" now", "error", err)
	case err == nil && before != nil:
		s.log.Info("can " + what + " again")
	}
}

// isFinding reports whether an error describes the state of the group that the API server returned.
func isFinding(err error) bool {
	for _, finding := range []error{ErrForbidden, errRecord, ErrLayout, ErrLeader, ErrProgram, errStopped, errRecreated} {
		if errors.Is(err, finding) {
			return true
		}
	}
	return false
}

// leftBehind returns the log attributes for a Lease that could not be deleted. It returns none for a missing
// permission, which setError logs.
func leftBehind(err error) []any {
	if errors.Is(err, ErrForbidden) {
		return nil
	}
	return []any{"error", err}
}
