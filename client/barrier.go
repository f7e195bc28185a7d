package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/store"
)

// WaitForCache returns when the cache shows everything that the server had when it was called: of the kinds of the given
// objects, of which nothing else is used, or of all that are watched. It is for those who want to see the writes of
// others; one's own are seen without it.
//
// It waits for at most Options.CacheTimeout, or the deadline of ctx if that is earlier. Its error matches ErrCacheBehind and
// says which kind is behind, and why; a kind that is not watched is an error that matches ErrNotWatched.
func (c *Client) WaitForCache(ctx context.Context, kinds ...Object) error {
	if err := c.usable(); err != nil {
		return err
	}
	if c.opt.Cache == nil {
		return fmt.Errorf("cannot wait for the cache: %w", ErrNotWatched)
	}
	var stores []*store.Store
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
		stores = c.opt.Cache.Stores(schema.GroupVersionResource{})
	}
	if err := fence(ctx); err != nil {
		return fmt.Errorf("cannot wait for the cache: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.CacheTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, st := range stores {
		for _, scope := range st.Statuses() {
			wg.Go(func() {
				if err := c.barrier(ctx, st, scope.Namespace); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, fmt.Errorf("cannot wait for the cache of %s: %w: %w", st.Options().Resource.GroupResource(), ErrCacheBehind, err))
				}
			})
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

const (
	barrierPatience = 250 * time.Millisecond // for the version alone
	barrierLook     = 50 * time.Millisecond  // between two looks at the content
)

// barrier waits for one scope of a store. The version of a consistent list moves with every write to the server, so on a
// quiet kind the watch would only reach it with the next bookmark, a minute later. When the version does not come soon,
// what is there is compared instead: a store that holds exactly what the list has is caught up, whatever its version.
func (c *Client) barrier(ctx context.Context, st *store.Store, namespace string) error {
	o := st.Options()
	q := url.Values{}
	if o.LabelSelector != "" {
		q.Set("labelSelector", o.LabelSelector)
	}
	if o.FieldSelector != "" {
		q.Set("fieldSelector", o.FieldSelector)
	}
	req := call.Request{Resource: o.Resource, Kind: o.Kind.Kind, Namespace: namespace, Query: q, Accept: accept((*metav1.PartialObjectMetadataList)(nil), true)}
	version := ""
	for page, err := range call.Pages(ctx, c.call, req, call.Policy{PageSize: 1}) {
		if err != nil {
			return err
		}
		version = page.Version
		break
	}
	if err := c.waitShortly(ctx, st, namespace, version, barrierPatience); err == nil || ctx.Err() != nil {
		return err
	}
	if o.ShardSelector != "" { // which objects it selects cannot be listed here
		return st.WaitForNamespace(ctx, namespace, version)
	}
	listed := map[Key]incarnation{}
	for page, err := range call.Pages(ctx, c.call, req, call.Policy{PageSize: call.CachePage}) {
		if err != nil {
			return err
		}
		if page.Restarted {
			clear(listed)
		}
		version = page.Version
		for i := range page.Items {
			var m metav1.PartialObjectMetadata
			if err := page.Decode(i, &m); err != nil {
				return err
			}
			listed[KeyOf(&m)] = incarnation{m.UID, m.ResourceVersion}
		}
	}
	for {
		if shows(st, namespace, listed) {
			return nil
		}
		if err := c.waitShortly(ctx, st, namespace, version, barrierLook); err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func (c *Client) waitShortly(ctx context.Context, st *store.Store, namespace, version string, d time.Duration) error {
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return st.WaitForNamespace(short, namespace, version)
}

type incarnation struct {
	uid     types.UID
	version string
}

// shows says whether a scope of a store has what was listed, nothing older and nothing besides.
func shows(st *store.Store, namespace string, listed map[Key]incarnation) bool {
	s := st.Snapshot()
	have := s.Len()
	if namespace != "" {
		have = 0
		for range s.InNamespace(namespace) {
			have++
		}
	}
	if have != len(listed) {
		return false
	}
	for key, want := range listed {
		r, ok := s.Get(key)
		if !ok {
			return false
		}
		if order, err := resourceversion.CompareResourceVersion(r.Version(), want.version); err != nil && r.Version() != want.version || order < 0 || order == 0 && r.UID() != want.uid {
			return false
		}
	}
	return true
}
