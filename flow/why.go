package flow

import (
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/goroutine"
	"github.com/fairlead-io/fairlead/why"
)

// Explained is a Wait that says why its condition does not hold yet.
type Explained interface {
	Wait
	// Why returns the causes, with the value that was seen last as their evidence. It is called while the fiber is parked,
	// by any goroutine, several at a time, perhaps beside Check; it must be brief and ask nobody outside.
	Why() []why.Cause
}

// notes are what is known of the trouble of the step that a fiber is at; guarded by Engine.mu.
type notes struct {
	causes []why.Cause // of Because
	err    error       // that led to another try
	since  int64       // when it failed first
	led    error       // that led to it, an Else or OnError step
}

// led returns the error that led to the step. For the worker that runs the fiber.
func (x *extra) led() error {
	if x.notes == nil {
		return nil
	}
	return x.notes.led
}

// Because notes why the fiber is about to wait. It holds until the step is left, or runs again, and is what
// [Handle.Why] tells of the step.
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

// failing notes an error that leads to another try.
func (f *fiber) failing(err error, now int64) {
	f.note(func(n *notes) {
		if n.err = err; n.since == 0 {
			n.since = now
		}
	})
}

// forget drops the notes of the step before. Where the step is the same one, tried again, its error stays.
func (f *fiber) forget(again bool) {
	x := f.x.Load()
	if x == nil || x.notes == nil { // nobody but the worker that runs the fiber writes it
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

// Why says why the fiber does not move on, the most direct cause first: what its step has said, an error after which it
// is tried again, what it waits for, the fibers before it. None: it has ended, or is at work and has not been for long.
// classify says what the error of a step means; where it says nothing, and where it is nil, the causes count that the
// error carries (why.Because), or else that it failed.
//
// It may be called at any time, by many at a time, and costs the same however many fibers there are.
func (h Handle) Why(classify func(error) []why.Cause) []why.Cause {
	if h.f == nil {
		return nil
	}
	return h.f.causes(classify, 0)
}

// causes is Handle.Why. Code of users is called without the lock.
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

// tries says that the step is tried again, or is about to be: then the error of the try before counts.
func (s *sight) tries() bool {
	return s.Status != Parked || s.Why == whyRetry.String() || s.Why == whyLoad.String()
}

// maxAsked is how many children of a fork are asked, and how deep.
const maxAsked = 4

// sight is what was seen of a fiber.
type sight struct {
	Info
	notes    notes
	failedAt time.Time // first, since it came to the step
	late     time.Time // when its time, or that of its step, is over
	waits    []Wait
	behind   []*fiber       // what it waits for: its children, or the one before it
	holder   Info           // at the gate
	ready    int            // fibers that wait for a worker
	running  int            // fibers of its group that have one
	workers  []goroutine.ID // whose code is in its way: its own, that of the holder, or that has a worker for longest
}

// sight takes a picture; false if the fiber is over.
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
	if f.why != whyGate { // nobody runs it, so that its fields are at rest
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
