package backoff

import (
	"context"
	"time"
)

// Pause waits for d or until ctx is done, and then returns the cause of ctx. If d is 0 or less it returns nil
// immediately, whatever the state of ctx.
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
