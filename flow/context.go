package flow

import (
	"context"
	"time"
)

// carrier is a fiber as the root of its contexts: never cancelled itself, so that attaching to it costs nothing, and found
// again by FromContext. It has the values that the fiber was given.
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

// Fenced returns why the fiber of ctx must not write any more: the cause of its cancellation (ErrPreempted when a newer fiber
// of its key has taken over) or ErrEnded; nil while it may, and for a context that is not of a fiber. Unlike ctx.Err it holds
// for contexts without cancellation made from it, too. A client asks it before each request.
func Fenced(ctx context.Context) error {
	f, ok := ctx.Value(carrierKey{}).(*fiber)
	if !ok {
		return nil
	}
	for ; f != nil; f = f.parent() {
		f.e.mu.Lock()
		cancelled, ended := f.cancelled.Load(), f.state.Ended()
		f.e.mu.Unlock()
		switch {
		case cancelled:
			return &CancelError{Path: f.whereabouts(), Key: f.Key(), Cause: f.x.Load().cause}
		case ended:
			return ErrEnded
		}
	}
	return nil
}

func (f *fiber) parent() *fiber {
	if f.join == nil {
		return nil
	}
	return f.join.parent
}

// openContext makes the context of the steps that run until the fiber parks. Whoever cancels the fiber either finds it, or is
// found here.
func (r *run) openContext() {
	f := r.f
	r.stopContext()
	ctx, cancel := context.WithCancelCause((*carrier)(f))
	f.mu.Lock()
	f.cancel = cancel
	f.mu.Unlock()
	if f.cancelled.Load() {
		cancel(f.x.Load().cause)
	}
	r.ctx = ctx
}

// stopContext ends the context of the last step, with the cause of the fiber's cancellation if there is one.
func (r *run) stopContext() {
	f := r.f
	f.mu.Lock()
	stop := f.cancel
	f.cancel = nil
	f.mu.Unlock()
	switch {
	case stop == nil:
	case f.cancelled.Load():
		stop(f.x.Load().cause)
	default:
		stop(errParked)
	}
}
