package fairlead

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/inherit"
)

// AddAlways is Add for what every process does, whether or not it leads: an HTTP API or webhooks beside controllers
// that run on the leader only. fn runs from before the election until all that was added with Add has stopped, so
// that it serves while that drains. The caches run from then on, too, in every process: what is acquired from
// [Host.Cache] is watched, and can be read; observers and controllers still wait for the lead. What fn sends is
// not bound to the lead.
//
// It must be called before Run, or Run returns the mistake. An error of fn, or a panic, stops the runtime. See
// [Runtime.Handler] for what /readyz says.
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

// serves says whether this process does something also while it does not lead.
func (rt *Runtime) serves() bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return len(rt.always) > 0
}

// serve runs what was added with AddAlways, and the caches for it, until stop is called.
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
