package fairlead

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/inherit"
)

// AddAlways is like Add for functions that every process runs, whether or not it leads, such as an HTTP API or webhooks
// beside controllers. fn runs from before the election until all functions added with Add have stopped, so it serves
// while they drain. The caches then also run in every process: stores acquired from [Host.Cache] are watched and can be
// read. Observers and controllers still wait for leadership. Requests that fn sends are not bound to leadership.
//
// AddAlways must be called before Run; otherwise Run returns the mistake. An error or a panic of fn stops the runtime.
// [Runtime.Handler] describes the effect on /readyz.
func (c *Host) AddAlways(name string, fn func(ctx context.Context) error) {
	if c.name != "" {
		name = c.name + "/" + name
	}
	c.rt.mu.Lock()
	defer c.rt.mu.Unlock()
	switch {
	case fn == nil:
		c.rt.mistakeLocked(fmt.Errorf("cannot add %q: it is nil", name))
	case c.rt.ran:
		c.rt.mistakeLocked(fmt.Errorf("cannot add %q: %w", name, errRan))
	default:
		c.rt.always = append(c.rt.always, task{name, func(ctx context.Context) error { return fn(inherit.With(ctx, c.log)) }})
	}
}

// serves reports whether this process has functions to run while it does not lead.
func (rt *Runtime) serves() bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return len(rt.always) > 0
}

// serve runs the functions of AddAlways, and the caches for them, until stop is called.
func (rt *Runtime) serve(ctx context.Context, fail func(error)) (stop func() error) {
	if !rt.serves() {
		return func() error { return nil }
	}
	caches := newTasks(context.WithoutCancel(ctx), fail)
	rt.runCaches(caches)
	tasks := newTasks(context.WithoutCancel(ctx), fail)
	rt.mu.Lock()
	for _, t := range rt.always {
		tasks.add(t)
	}
	rt.mu.Unlock()
	return func() error { return errors.Join(tasks.stop(rt.opts.stopTimeout), caches.stop(grace)) }
}
