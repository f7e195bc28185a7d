package access

import (
	"context"
	"sync"
)

// flights merges concurrent calls with the same key into one call. The zero value is ready to use.
type flights[K comparable, V any] struct {
	mu    sync.Mutex
	under map[K]*flight[V]
}

type flight[V any] struct {
	done      chan struct{}
	value     V
	err       error
	abandoned bool // the calling context ended, so the result is not shared
}

// do returns the result of fn. If a call for the key is in progress, do waits for its result instead.
func (f *flights[K, V]) do(ctx context.Context, key K, fn func() (V, error)) (V, error) {
	for {
		f.mu.Lock()
		there := f.under[key]
		if there == nil {
			break
		}
		f.mu.Unlock()
		select {
		case <-there.done:
		case <-ctx.Done():
			var none V
			return none, context.Cause(ctx)
		}
		if !there.abandoned {
			return there.value, there.err
		}
	}
	mine := &flight[V]{done: make(chan struct{}), abandoned: true}
	if f.under == nil {
		f.under = make(map[K]*flight[V])
	}
	f.under[key] = mine
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.under, key)
		f.mu.Unlock()
		close(mine.done)
	}()
	mine.value, mine.err = fn()
	mine.abandoned = mine.err != nil && ctx.Err() != nil
	return mine.value, mine.err
}
