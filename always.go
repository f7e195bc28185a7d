package fairlead

import (
	"context"
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
	if fn == nil {
		c.rt.declared.mistake(fmt.Errorf("cannot add %q: it is nil", name))
		return
	}
	c.rt.declared.addAlways(task{name, func(ctx context.Context) error { return fn(inherit.With(ctx, c.log)) }})
}
