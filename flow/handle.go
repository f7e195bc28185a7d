package flow

import "context"

// Cancel asks the fiber to end as cancelled. A parked fiber ends at once. The context of a running fiber is cancelled,
// and the fiber ends when its step returns. A fiber that waits for its children cancels them and ends after the last
// one. Cancel reports whether the request came in time. If so, the fiber's error matches ErrCancelled and cause. A nil
// cause means ErrCancelled.
func (h Handle) Cancel(cause error) bool {
	if cause == nil {
		cause = ErrCancelled
	}
	return h.end(cause, cancel)
}

// Interrupt is like Cancel but lets the running step finish. A durable fiber then saves the step at which it continues.
// The fiber ends before it begins the next step. If there is no next step, it ends with the outcome of the running one.
// If the step takes too long, the caller may follow up with Cancel. A parked fiber ends at once, as with Cancel. The
// cause should match ErrInterrupted or ErrMoved.
func (h Handle) Interrupt(cause error) bool {
	if cause == nil {
		cause = ErrInterrupted
	}
	return h.end(cause, interrupt)
}

// end asks the fiber to end, by how: cancel or interrupt.
func (h Handle) end(cause error, how func(*fiber, error, *cancels) bool) bool {
	if h.f == nil {
		return false
	}
	cause = printable(h.f, cause)
	var calls cancels
	e := h.f.e
	e.mu.Lock()
	ok := how(h.f, cause, &calls)
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

// Wait waits until the fiber has ended and returns its error. If ctx ends first, it returns the cause of ctx. A step
// must not call Wait. It uses Fork to wait for other fibers.
func (h Handle) Wait(ctx context.Context) error {
	select {
	case <-h.Done():
		return h.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Status returns the state of the fiber.
func (h Handle) Status() Status {
	if h.f == nil {
		return Completed
	}
	h.f.e.mu.Lock()
	defer h.f.e.mu.Unlock()
	return h.f.state
}

// Err returns the error of a fiber that has ended. It returns nil before that, and if the fiber completed.
func (h Handle) Err() error {
	if h.f == nil || !h.Status().Ended() {
		return nil
	}
	if x := h.f.x.Load(); x != nil {
		return x.err
	}
	return nil
}

// Step returns the path, within its flow, of the current or last step of the fiber. StartOptions.From of Undo takes
// this path.
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
	return h.f.root().key
}

// Epoch returns the epoch of the fiber, which is higher than that of any fiber started before it.
func (h Handle) Epoch() uint64 {
	if h.f == nil {
		return 0
	}
	return h.f.root().epoch
}
