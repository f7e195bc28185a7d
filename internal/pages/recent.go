package pages

import (
	"context"
	"sync"
	"time"
)

// recentFor is how long a Recent keeps a value.
const recentFor = time.Second

// Recent caches a value that several pages need, for a second. The zero value is ready to use. It is safe for
// concurrent use.
type Recent[T any] struct {
	mu    sync.Mutex
	at    time.Time
	value T
}

// Get returns the value, or that of make if it has expired. One caller at a time calls make.
func (r *Recent[T]) Get(make func() T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) > recentFor {
		r.value, r.at = make(), time.Now()
	}
	return r.value
}

// Pause waits for d, or returns the error of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
