package flow

import (
	"context"
	"time"
)

// carrier is a fiber as the root of its contexts: never cancelled itself, so that attaching to it costs nothing, and
// found again by FromContext. It has the values that the fiber was given.
type carrier fiber

type carrierKey struct{}

func (*carrier) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*carrier) Done() <-chan struct{}       { return nil }
func (*carrier) Err() error                  { return nil }
func (c *carrier) String() string            { return "flow.Fiber" }
func (c *carrier) Value(key any) any {
	if key == (carrierKey{}) {
		return (*fiber)(c)
	}
	for f := (*fiber)(c); f != nil; f = f.parent() {
		if x := f.x.Load(); x != nil && x.values != nil {
			return x.values.Value(key)
		}
	}
	return nil
}

// FromContext returns the fiber whose step was given ctx, or a context made from it.
func FromContext(ctx context.Context) (Handle, bool) {
	f, ok := ctx.Value(carrierKey{}).(*fiber)
	return Handle{f}, ok
}

// Fenced returns why the fiber of ctx must not write any more: the cause of its cancellation (ErrPreempted when a newer
// fiber of its key has taken over) or ErrEnded; nil while it may, and for a context that is not of a fiber. Unlike
// ctx.Err it holds for contexts without cancellation made from it, too. A client asks it before each request.
func Fenced(ctx context.Context) error {
	f, ok := ctx.Value(carrierKey{}).(*fiber)
	if !ok {
		return nil
	}
	for ; f != nil; f = f.parent() {
		f.e.mu.Lock()
		cancelled, ended := f.progress.cancelled(), f.state.Ended()
		f.e.mu.Unlock()
		switch {
		case cancelled:
			return &cancelError{Path: f.whereabouts(), Key: f.Key(), Cause: f.x.Load().cause}
		case ended:
			return ErrEnded
		}
	}
	return nil
}

// stepContext is the context of the steps that a fiber runs until it parks. It ends at the deadline of the running
// step.
type stepContext struct {
	f     *fiber
	ctx   context.Context //nolint:containedctx // it lives exactly as long as the run
	timed bool            // a timer ends it at a deadline of the step or the fiber
}

// open makes the context. Whoever cancels the fiber either finds it, or is found here.
func (c *stepContext) open() {
	f := c.f
	f.stopContext()
	ctx, cancel := context.WithCancelCause((*carrier)(f))
	f.progress.swapCancel(cancel)
	if f.progress.cancelled() {
		cancel(f.x.Load().cause)
	}
	c.ctx = ctx
}

// arm has the context end at the deadline of the step, or that of the fiber; it returns an error if that has passed.
func (c *stepContext) arm(now int64) error {
	f := c.f
	at := f.deadlines()
	switch {
	case at == 0 && !c.timed:
		return nil
	case f.late(now):
		return errFiberLate
	case at > 0 && now >= at:
		return errDeadline
	}
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	if c.ctx.Err() != nil { // the deadline was that of the step before
		c.open()
	}
	if c.timed = at > 0; c.timed {
		f.e.setTimer(f, at)
	} else {
		f.e.timers.remove(f)
	}
	return nil
}

// timedOut says whether the context has ended because a deadline has passed.
func (c *stepContext) timedOut() bool {
	return c.ctx.Err() != nil && context.Cause(c.ctx) == ErrTimeout
}

// stopContext ends the context of the last step, with the cause of the fiber's cancellation if there is one.
func (f *fiber) stopContext() {
	switch stop := f.progress.swapCancel(nil); {
	case stop == nil:
	case f.progress.cancelled():
		stop(f.x.Load().cause)
	default:
		stop(errParked)
	}
}

// stepDeadline is when the time of the step is over, 0 if it has no limit.
func (f *fiber) stepDeadline() int64 {
	if d := f.step().deadline; d > 0 {
		return plus(f.progress.entered, d)
	}
	return 0
}

// deadlines is when the time of the step or of the fiber is over, 0 if neither has a limit.
func (f *fiber) deadlines() int64 {
	at := f.stepDeadline()
	if x := f.x.Load(); x != nil && x.deadline > 0 {
		at = earlier(at, x.deadline)
	}
	return at
}

// untilDeadline is the given time, or the deadline if that comes before.
func (f *fiber) untilDeadline(at int64) int64 { return earlier(at, f.deadlines()) }

// late says whether the time of the fiber is over.
func (f *fiber) late(now int64) bool {
	x := f.x.Load()
	return x != nil && x.deadline > 0 && now >= x.deadline
}
