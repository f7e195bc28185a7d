package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
)

// WaitForCache returns when the cache shows everything that the server had when it was called: of the kinds of the
// given objects, of which nothing else is used, or of all that are watched. It is for those who want to see the writes
// of others; one's own are seen without it.
//
// The server is asked once for all who wait, at most once a second, by a list of the metadata of each kind: see
// [cache.Store.Barrier]. It waits for at most 10 s, or the deadline of ctx if that is earlier. Its
// error matches ErrCacheBehind and says which kind is behind, and why; a kind that is not watched is an error that
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
