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
			return &cancelError{Path: f.whereabouts(), Key: f.root().key, Cause: f.x.Load().cause}
		case ended:
			return ErrEnded
		}
	}
	return nil
}
