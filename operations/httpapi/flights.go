package httpapi

import (
	"context"
	"sync"
)

// flights has one caller find out what several want to know at the same time. The zero value works.
type flights[K comparable, V any] struct {
	mu    sync.Mutex
	under map[K]*flight[V]
}

type flight[V any] struct {
	done      chan struct{}
	value     V
	err       error
	abandoned bool // who was to find out is gone: it says nothing to the others
}

// do returns what fn does, which is called unless somebody else's is under way for the key.
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
