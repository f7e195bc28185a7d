package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fairlead-io/fairlead/cache"
)

// waitForCache implements [Client.WaitForCache].
func (r reader) waitForCache(ctx context.Context, objects []Object) error {
	if r.kinds == nil {
		return ErrNotMade
	}
	if r.stores.empty() {
		return fmt.Errorf("cannot wait for the cache: %w", ErrNotWatched)
	}
	var stores []*cache.Store
	for _, obj := range objects {
		k, err := r.kinds.of(obj)
		if err != nil {
			return err
		}
		of := r.stores.of(k)
		if len(of) == 0 {
			return k.fail("wait for the cache of", Key{}, ErrNotWatched)
		}
		stores = append(stores, of...)
	}
	if len(objects) == 0 {
		stores = r.stores.all()
	}
	if err := r.server.fence(ctx); err != nil {
		return fmt.Errorf("cannot wait for the cache: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, st := range stores {
		wg.Go(func() {
			if err := st.Barrier(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%w: %w", ErrCacheBehind, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
