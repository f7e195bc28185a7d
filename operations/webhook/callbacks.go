package webhook

import (
	"log/slog"

	"github.com/fairlead-io/fairlead/internal/protect"
)

// callbacks runs functions of the user and recovers their panics. It has no state, and no lock is held while it runs.
type callbacks struct {
	onBreaker func(namespace, name string, status BreakerStatus) // nil: none
	logger    *slog.Logger
}

func (c callbacks) run(functions ...func()) {
	for _, function := range functions {
		if p := protect.Call(function); p != nil {
			c.logger.Error("panic in a callback of the webhook client", "panic", p.Value, "stack", string(p.Stack))
		}
	}
}

// breakerUsed calls onBreaker if the breaker of g is in another state than before.
func (c callbacks) breakerUsed(d *Definition, g *gate, before BreakerStatus) {
	if c.onBreaker == nil {
		return
	}
	if now := g.breakerStatus(); now.State != before.State || !now.Until.Equal(before.Until) {
		c.run(func() { c.onBreaker(d.Namespace, d.Name, now) })
	}
}
