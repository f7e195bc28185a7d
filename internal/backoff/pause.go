package backoff

import (
	"context"
	"time"
)

// Pause waits for d, or until ctx ends, whose cause it then returns. A d of 0 or less is over at once, whatever ctx is.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
