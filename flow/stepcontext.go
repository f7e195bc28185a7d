package flow

import "context"

// stepContext is the context of the steps that a fiber runs until it parks. It ends at the deadline of the running
// step. It belongs to the worker that runs the fiber.
type stepContext struct {
	f     *fiber
	ctx   context.Context //nolint:containedctx // lives as long as the run
	timed bool            // a timer ends the context at a deadline of the step or the fiber
}

// open makes the context. A concurrent cancellation either finds the new cancel function or is seen here.
func (c *stepContext) open() {
	f := c.f
	stopContext(f)
	ctx, cancel := context.WithCancelCause((*carrier)(f))
	f.progress.swapCancel(cancel)
	if f.progress.cancelled() {
		cancel(f.x.Load().cause)
	}
	c.ctx = ctx
}

// arm makes the context end at the deadline of the step or of the fiber. It returns an error if that deadline has
// passed.
func (c *stepContext) arm(h host, now int64) error {
	at := deadlines(c.f)
	switch {
	case at == 0 && !c.timed:
		return nil
	case at > 0 && now >= at:
		return lateness(c.f, now)
	}
	c.timed = at > 0
	if h.arm(c.ctx, c.f, at) { // ended by the deadline of the previous step
		c.open()
		if now := c.f.e.time.now(); at > 0 && now >= at { // the timer may have expired before the new context was open
			return lateness(c.f, now)
		}
	}
	return nil
}

// timedOut reports whether the context ended because a deadline passed.
func (c *stepContext) timedOut() bool {
	return c.ctx.Err() != nil && context.Cause(c.ctx) == ErrTimeout
}

// stopContext ends the context of the last step. Its cause is that of the fiber's cancellation, if the fiber is
// cancelled.
func stopContext(f *fiber) {
	switch stop := f.progress.swapCancel(nil); {
	case stop == nil:
	case f.progress.cancelled():
		stop(f.x.Load().cause)
	default:
		stop(errParked)
	}
}

// stepDeadline returns the deadline of the step, 0 if it has none.
func stepDeadline(f *fiber) int64 {
	if d := f.step().deadline; d > 0 {
		return plus(f.progress.entered, d)
	}
	return 0
}

// deadlines returns the earlier of the deadlines of the step and of the fiber, 0 if neither has one.
func deadlines(f *fiber) int64 {
	at := stepDeadline(f)
	if x := f.x.Load(); x != nil && x.deadline > 0 {
		at = earlier(at, x.deadline)
	}
	return at
}

// isLate reports whether the deadline of the fiber has passed.
func isLate(f *fiber, now int64) bool {
	x := f.x.Load()
	return x != nil && x.deadline > 0 && now >= x.deadline
}

// lateness returns the error of a deadline that has passed: that of the fiber or, if not, that of the step.
func lateness(f *fiber, now int64) error {
	if isLate(f, now) {
		return errFiberLate
	}
	return errDeadline
}
