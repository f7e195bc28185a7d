package flow

import (
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/goroutine"
	"github.com/fairlead-io/fairlead/why"
)

// Explained is a Wait that explains why its condition does not hold yet.
type Explained interface {
	Wait
	// Why returns the causes. Their evidence has the last value seen. The engine calls Why while the fiber is parked,
	// from any goroutine, concurrently with itself and with Check. Why must be brief and must not make external
	// requests.
	Why() []why.Cause
}

// causesOf implements Handle.Why. It calls user code without holding the lock.
func causesOf(f *fiber, classify func(error) []why.Cause, depth int) []why.Cause {
	s, ok := snapshotOf(f)
	if !ok {
		return nil
	}
	var causes []why.Cause
	for _, c := range s.notes.causes {
		causes = append(causes, s.placed(c))
	}
	if s.notes.err != nil && s.tries() {
		causes = append(causes, s.failed(classify)...)
	}
	if len(causes) == 0 {
		causes = s.waiting()
	}
	for _, other := range s.behind {
		if depth < maxAsked {
			causes = append(causes, causesOf(other, classify, depth+1)...)
		}
	}
	return causes
}

// tries reports whether the step is being retried or is about to be. The error of the last run then counts.
func (s *fiberSnapshot) tries() bool {
	return s.Status != Parked || s.Why == whyRetry.String() || s.Why == whyLoad.String()
}

// maxAsked limits how many children of a fork, and how many levels of forks, Why examines.
const maxAsked = 4

// fiberSnapshot is a snapshot of a fiber for Why.
type fiberSnapshot struct {
	Info
	notes    notes
	failedAt time.Time // when the step first failed, since it was entered
	late     time.Time // deadline of the wait, the step or the fiber
	waits    []Wait
	behind   []*fiber // the fibers that it waits for: its children, or the first one at the gate
	holder   Info     // the first fiber at the gate
	ready    int      // number of fibers that wait for a worker
	running  int      // number of fibers of its group that have a worker
	// workers run the code that delays the fiber: its own, that of the holder, or that of the slowest fiber.
	workers []goroutine.ID
}

// snapshotOf takes a snapshot. ok is false if the fiber has ended.
func snapshotOf(f *fiber) (s fiberSnapshot, ok bool) {
	e := f.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.state.Ended() {
		return s, false
	}
	s = fiberSnapshot{Info: infoOf(f), running: int(f.subgroup.group.running)}
	s.ready, _, _ = e.sched.load()
	if x := f.x.Load(); x != nil && x.notes != nil {
		s.notes = *x.notes
		s.notes.causes = slices.Clone(s.notes.causes)
		s.failedAt = e.time.wall(s.notes.since)
	}
	switch f.state {
	case Running:
		s.workers = goroutinesOf(f, nil)
	case Ready:
		if slowest := slowest(&e.sched, f.subgroup.group); slowest != nil {
			s.workers = goroutinesOf(slowest, nil)
		}
	case Parked:
		s.addWait(f)
	}
	return s, true
}

// addWait adds what the parked fiber waits for. No worker runs the fiber, so the fields marked (owner) do not change.
func (s *fiberSnapshot) addWait(f *fiber) {
	t := &f.e.time
	if f.why == whyGate {
		if p := holder(f); p != nil {
			s.behind, s.holder, s.workers = []*fiber{p}, infoOf(p), goroutinesOf(p, nil)
		}
		return
	}
	if at := deadlines(f); at > 0 {
		s.late = t.wall(at)
	}
	switch f.why {
	case whyAwait:
		for _, w := range f.park.waits {
			s.waits = append(s.waits, w.wait)
		}
		if at := f.park.timeoutAt; at > 0 {
			s.late = t.wall(at)
		}
	case whyFork:
		for _, kid := range f.park.fork.kids {
			if kid != nil && len(s.behind) < maxAsked {
				s.behind = append(s.behind, kid)
			}
		}
	}
}
