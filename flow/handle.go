package flow

import "context"

// Handle is what others than its steps may hold of a fiber. The zero Handle is of no fiber: it has ended. Handles are
// comparable and safe for concurrent use.
type Handle struct{ f *fiber }

// Cancel asks the fiber to end as cancelled: a parked one ends at once, a running one finds its context cancelled and
// ends when its step returns, a forked one when its children have ended. It says whether it came in time; if so, the
// fiber's error matches ErrCancelled and cause. A nil cause is ErrCancelled.
func (h Handle) Cancel(cause error) bool {
	if cause == nil {
		cause = ErrCancelled
	}
	return h.end(cause, (*Engine).cancel)
}

// Interrupt is Cancel for a fiber that is not to be cut off: a step that runs is finished, and where the fiber goes on
// is saved if it is durable. It ends instead of beginning the next step, or as that step has made it if there is none.
// Cancel may follow, for a step that takes too long. The cause should match ErrInterrupted, or ErrMoved.
func (h Handle) Interrupt(cause error) bool {
	if cause == nil {
		cause = ErrInterrupted
	}
	return h.end(cause, (*Engine).interrupt)
}

// end asks the fiber to end in one of two ways.
func (h Handle) end(cause error, how func(*Engine, *fiber, error, *cancels) bool) bool {
	if h.f == nil {
		return false
	}
	cause = h.f.printable(cause)
	var calls cancels
	e := h.f.e
	e.mu.Lock()
	ok := how(e, h.f, cause, &calls)
	e.mu.Unlock()
	calls.run()
	return ok
}

// Done returns a channel that is closed when the fiber has ended and its callback has returned.
func (h Handle) Done() <-chan struct{} {
	if h.f == nil {
		return closed
	}
	h.f.e.mu.Lock()
	defer h.f.e.mu.Unlock()
	if h.f.state.Ended() {
		return closed
	}
	x := h.f.ext()
	if x.done == nil {
		x.done = make(chan struct{})
	}
	return x.done
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Wait waits for the end of the fiber and returns its error; the cause of ctx if that ends first. It must not be called
// from a step: a step that waits for a fiber is a Fork.
func (h Handle) Wait(ctx context.Context) error {
	select {
	case <-h.Done():
		return h.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Status returns where the fiber is.
func (h Handle) Status() Status {
	if h.f == nil {
		return Completed
	}
	h.f.e.mu.Lock()
	defer h.f.e.mu.Unlock()
	return h.f.state
}

// Err returns how a fiber that has ended failed; nil before, and if it completed.
func (h Handle) Err() error {
	if h.f == nil || !h.Status().Ended() {
		return nil
	}
	if x := h.f.x.Load(); x != nil {
		return x.err
	}
	return nil
}

// Step returns the path, within its flow, of the step that the fiber is at or ended at: what Undo takes as From.
func (h Handle) Step() string {
	if h.f == nil || len(h.f.flow.def.steps) == 0 {
		return ""
	}
	return h.f.flow.def.steps[h.f.progress.at()].path
}

// Key returns the key that the fiber was started with.
func (h Handle) Key() string {
	if h.f == nil {
		return ""
	}
	return h.f.Key()
}

// Epoch returns the number of the fiber at the gate: higher than that of any fiber started before it.
func (h Handle) Epoch() uint64 {
	if h.f == nil {
		return 0
	}
	return h.f.Epoch()
}
