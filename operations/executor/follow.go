package executor

import (
	"context"

	"github.com/fairlead-io/fairlead/internal/store"
)

// follow runs a drainer until the context ends.
func follow(ctx context.Context, d *store.Drainer) {
	_ = d.Run(ctx) // it ends with ctx, which the caller checks, or with its store
}

// each returns a consumer that calls f for each event until the context ends.
func each(ctx context.Context, f func(*store.Event)) func([]store.Event) (more bool) {
	return func(events []store.Event) bool {
		for i := range events {
			if ctx.Err() != nil {
				return false
			}
			f(&events[i])
		}
		return true
	}
}
