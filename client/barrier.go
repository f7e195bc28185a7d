package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
)

// WaitForCache waits until the cache contains everything that the server had when WaitForCache was called. The objects
// in kinds only determine the kinds to wait for; without any, it waits for all watched kinds. Use it to see writes of
// other clients; the client's own writes are visible without it.
//
// It lists the metadata of each kind. All waiting callers share one list, at most once a second: see
// [cache.Store.Barrier]. WaitForCache waits at most 10 s, or until the deadline of ctx if that is earlier. Its error
// then matches ErrCacheBehind and names the kind and the cause. A kind that is not watched returns an error that
// matches ErrNotWatched.
func (c *Client) WaitForCache(ctx context.Context, kinds ...Object) error {
	if err := c.usable(); err != nil {
		return err
	}
	if c.opt.Cache == nil && len(c.opt.Stores) == 0 {
		return fmt.Errorf("cannot wait for the cache: %w", ErrNotWatched)
	}
	var stores []*cache.Store
	for _, obj := range kinds {
		k, err := c.kindOf(obj)
		if err != nil {
			return err
		}
		of := c.stores(k)
		if len(of) == 0 {
			return k.fail("wait for the cache of", Key{}, ErrNotWatched)
		}
		stores = append(stores, of...)
	}
	if len(kinds) == 0 {
		stores = append(c.opt.Cache.Stores(schema.GroupVersionResource{}), c.opt.Stores...)
	}
	if err := c.fence(ctx); err != nil {
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
