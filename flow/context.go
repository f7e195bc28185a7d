package flow

import (
	"context"
	"time"
)

// carrier is the root context of a fiber. It is never cancelled, so deriving a context from it costs nothing.
// FromContext finds the fiber through it. Its values are StartOptions.Values of the fiber or of the fibers that forked
// it.
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

// FromContext returns the fiber of a step context, or of a context derived from one.
func FromContext(ctx context.Context) (Handle, bool) {
	f, ok := ctx.Value(carrierKey{}).(*fiber)
	return Handle{f}, ok
}

// Fenced returns why the fiber of ctx must not write any more. The error has the cause of the fiber's cancellation,
// such as ErrPreempted when a newer fiber of its key has taken over, or it is ErrEnded. Fenced returns nil while the
// fiber may write, and for a context without a fiber. Unlike ctx.Err it also works on derived contexts without
// cancellation. A client calls Fenced before each request.
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
	ctx   context.Context //nolint:containedctx // lives as long as the run
	timed bool            // a timer ends the context at a deadline of the step or the fiber
}

// open makes the context. A concurrent cancellation either finds the new cancel function or is seen here.
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

// arm makes the context end at the deadline of the step or of the fiber. It returns an error if that deadline has
// passed.
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
	if c.ctx.Err() != nil { // ended by the deadline of the previous step
		c.open()
	}
	if c.timed = at > 0; c.timed {
		f.e.setTimer(f, at)
	} else {
		f.e.timers.remove(f)
	}
	return nil
}

// timedOut reports whether the context ended because a deadline passed.
func (c *stepContext) timedOut() bool {
	return c.ctx.Err() != nil && context.Cause(c.ctx) == ErrTimeout
}

// stopContext ends the context of the last step. Its cause is that of the fiber's cancellation, if the fiber is
// cancelled.
func (f *fiber) stopContext() {
	switch stop := f.progress.swapCancel(nil); {
	case stop == nil:
	case f.progress.cancelled():
		stop(f.x.Load().cause)
	default:
		stop(errParked)
	}
}

// stepDeadline returns the deadline of the step, 0 if it has none.
func (f *fiber) stepDeadline() int64 {
	if d := f.step().deadline; d > 0 {
		return plus(f.progress.entered, d)
	}
	return 0
}

// deadlines returns the earlier of the deadlines of the step and of the fiber, 0 if neither has one.
func (f *fiber) deadlines() int64 {
	at := f.stepDeadline()
	if x := f.x.Load(); x != nil && x.deadline > 0 {
		at = earlier(at, x.deadline)
	}
	return at
}

// untilDeadline returns the earlier of at and the deadlines.
func (f *fiber) untilDeadline(at int64) int64 { return earlier(at, f.deadlines()) }

// late reports whether the deadline of the fiber has passed.
func (f *fiber) late(now int64) bool {
	x := f.x.Load()
	return x != nil && x.deadline > 0 && now >= x.deadline
}
