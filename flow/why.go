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

// notes explain the current step of a fiber. Guarded by Engine.mu.
type notes struct {
	causes []why.Cause // from Because
	err    error       // of the last run, which is retried
	since  int64       // when the step first failed
	led    error       // the error that led to this step through Else or OnError
}

// led returns the error that led to the step. Only the worker that runs the fiber may call it.
func (x *extra) led() error {
	if x.notes == nil {
		return nil
	}
	return x.notes.led
}

// Because records why the fiber is about to wait, for [Handle.Why]. The causes are valid until the fiber leaves the
// step or runs it again.
//
//	f.Because(why.Cause{Type: why.Parked, Message: "no address is free", Advice: "Enlarge the pool."})
//	return f.Await(&pool.Changed)
func (f *fiber) Because(causes ...why.Cause) {
	f.note(func(n *notes) { n.causes = append(n.causes, causes...) })
}

func (f *fiber) note(change func(*notes)) {
	x := f.ext()
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	if x.notes == nil {
		x.notes = &notes{}
	}
	change(x.notes)
}

// failing records an error after which the step is retried.
func (f *fiber) failing(err error, now int64) {
	f.note(func(n *notes) {
		if n.err = err; n.since == 0 {
			n.since = now
		}
	})
}

// forget drops the notes of the previous run. If the same step runs again, its error remains.
func (f *fiber) forget(again bool) {
	x := f.x.Load()
	if x == nil || x.notes == nil { // only the worker that runs the fiber writes notes
		return
	}
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	if !again {
		x.notes.err, x.notes.since = nil, 0
	}
	if x.notes.causes = nil; x.notes.err == nil && x.notes.led == nil {
		x.notes = nil
	}
}

// Why returns the causes for which the fiber makes no progress, the most direct first. They come from Because, from an
// error after which the step is retried, from the waits, and from the fibers that it waits for. There is no cause if
// the fiber has ended, or has been running for a short time only.
//
// classify maps the error of a step to causes. If classify is nil or returns none, the causes that the error carries
// (why.Because) count. Without those, the cause is that the step failed.
//
// Why may be called at any time and concurrently. Its cost does not depend on the number of fibers in the engine.
func (h Handle) Why(classify func(error) []why.Cause) []why.Cause {
	if h.f == nil {
		return nil
	}
	return h.f.causes(classify, 0)
}

// causes implements Handle.Why. It calls user code without holding the lock.
func (f *fiber) causes(classify func(error) []why.Cause, depth int) []why.Cause {
	s, ok := f.sight()
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
			causes = append(causes, other.causes(classify, depth+1)...)
		}
	}
	return causes
}

// tries reports whether the step is being retried or is about to be. The error of the last run then counts.
func (s *sight) tries() bool {
	return s.Status != Parked || s.Why == whyRetry.String() || s.Why == whyLoad.String()
}

// maxAsked limits how many children of a fork, and how many levels of forks, Why examines.
const maxAsked = 4

// sight is a snapshot of a fiber for Why.
type sight struct {
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

// sight takes a snapshot. ok is false if the fiber has ended.
func (f *fiber) sight() (s sight, ok bool) {
	e := f.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.state.Ended() || f.isCursor() {
		return s, false
	}
	s = sight{
		Info: e.info(f), ready: int(e.queued.Load()), running: int(f.part.group.running),
	}
	x := f.x.Load()
	if x != nil && x.notes != nil {
		s.notes = *x.notes
		s.notes.causes = slices.Clone(s.notes.causes)
		s.failedAt = e.wall(s.notes.since)
	}
	switch f.state {
	case Running:
		e.goroutines(f, &s.workers)
	case Ready:
		if slowest := e.slowest(f.part.group); slowest != nil {
			e.goroutines(slowest, &s.workers)
		}
	}
	if f.state != Parked {
		return s, true
	}
	if f.why != whyGate { // no worker runs the fiber, so the fields marked (owner) do not change
		if at := f.deadlines(); at > 0 {
			s.late = e.wall(at)
		}
	}
	switch f.why {
	case whyGate:
		if p := f.pred(); p != nil {
			for p.pred() != nil {
				p = p.pred()
			}
			s.behind, s.holder = []*fiber{p}, e.info(p)
			e.goroutines(p, &s.workers)
		}
	case whyAwait:
		for _, w := range f.park.waits {
			s.waits = append(s.waits, w.wait)
		}
		if at := f.park.timeoutAt; at > 0 {
			s.late = e.wall(at)
		}
	case whyFork:
		for _, kid := range f.park.fork.kids {
			if kid != nil && len(s.behind) < maxAsked {
				s.behind = append(s.behind, kid)
			}
		}
	}
	return s, true
}
