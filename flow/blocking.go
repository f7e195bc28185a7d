package flow

import "context"

// Blocking calls fn, which waits for something outside of the process, such as the response to a request. ctx is the
// context of a step or is derived from it. While fn runs, the fiber does not count as one of EngineOptions.Workers, so
// another fiber may begin. Package call, and so package client, does this for its requests. Use it for the requests of
// other clients:
//
//	flow.Blocking(ctx, func() { err = cloud.Boot(ctx, name) })
//
// The following holds for a fiber in Blocking:
//
//   - It is Running. No other fiber of its key begins, and Engine.Drain and Engine.Close wait for it. A cancellation
//     and a deadline end ctx, as in the rest of the step. EngineOptions.PerGroup counts it.
//   - Blocking never waits, neither before nor after fn. The step may hold a lock for which the fibers on all workers
//     wait, so it must not wait for a worker itself. A step that returns to busy workers makes one more fiber run, and
//     fewer fibers begin until their number is back to Workers.
//   - At most EngineOptions.Requests fibers do not count; further ones keep their workers. So at most Workers plus
//     Requests fibers run.
//
// Blocking may be nested, and several goroutines of a step may call it. With any other context it only calls fn. A nil
// fn does nothing.
func Blocking(ctx context.Context, fn func()) {
	if fn == nil {
		return
	}
	f, ok := ctx.Value(carrierKey{}).(*fiber)
	if !ok {
		fn()
		return
	}
	a := f.e.leave(f)
	defer f.e.comeBack(a)
	fn()
}

// leave begins an absence of the worker of f. It returns the zero absence if no worker runs f.
func (c *core) leave(f *fiber) absence {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sched.leave(f)
}

// comeBack ends an absence.
func (c *core) comeBack(a absence) {
	if a.w == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sched.comeBack(a)
}
