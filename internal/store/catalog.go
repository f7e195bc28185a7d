package store

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/source"
)

// cacheEntry is a store of a Cache with its source.
type cacheEntry struct {
	source *source.Source
	store  *Store
	scopes sync.Mutex // serializes changes of the namespaces
	claim  *claim     // to the file of the store; nil if it is not saved

	// Owned by the catalog.
	key    cacheKey
	users  int
	linger *time.Timer
	stop   context.CancelFunc // ends the watch; nil before it has started
	gone   bool
}

// load fills the store of an entry from disk before its source starts, and begins to save it. The returned function
// ends that, with a last save if last is true.
func (e *cacheEntry) load(ctx context.Context) (endSaving func(last bool)) {
	if !e.claim.isFree(ctx) {
		return func(bool) {}
	}
	e.claim.removeOthers(ctx)
	if e.claim.never {
		return func(bool) {}
	}
	e.resume(ctx)
	return e.claim.saveRepeatedly(ctx)
}

func (e *cacheEntry) resume(ctx context.Context) {
	e.scopes.Lock() // the namespaces must not change meanwhile
	defer e.scopes.Unlock()
	watched := map[string]bool{}
	for _, st := range e.source.Status() {
		watched[st.Namespace] = true
	}
	e.claim.resume(ctx, func(namespace string) bool { return watched[namespace] })
}

// catalog holds the stores of a Cache. It counts their users, and removes a store some time after the last one. The
// start function, given by the owner, starts the watch of a store.
type catalog struct {
	linger time.Duration
	index  storeIndex

	mu      sync.Mutex
	entries map[cacheKey]*cacheEntry
	start   func(*cacheEntry) context.CancelFunc // nil before begin and after end
	ended   bool
	moves   int // number of entries that rename has given the namespaces of another
}

func (c *catalog) init(linger time.Duration) {
	c.linger, c.entries = linger, map[cacheKey]*cacheEntry{}
	c.index.replace(nil)
}

// begin starts the watches of all stores, and of each later one. It returns false if it was called before.
func (c *catalog) begin(start func(*cacheEntry) context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.start != nil || c.ended {
		return false
	}
	c.start = start
	for _, e := range c.entries {
		e.stop = start(e)
	}
	return true
}

// declare calls fn with the lock held, unless begin was called before, and returns the stores at that time.
func (c *catalog) declare(fn func() error) (there []*Store, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.start != nil || c.ended {
		return nil, errBegun
	}
	if err := fn(); err != nil {
		return nil, err
	}
	for _, e := range c.entries {
		there = append(there, e.store)
	}
	return there, nil
}

// end refuses later requests. Stores stay until their watches end.
func (c *catalog) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start, c.ended = nil, true
	for _, e := range c.entries {
		if e.linger != nil {
			e.linger.Stop()
		}
	}
}

// acquire returns the store for a plan, with one user more. If there is none, it calls create with the lock held.
func (c *catalog) acquire(p *plan, create func(cacheKey, *plan) (*cacheEntry, error)) (*cacheEntry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, ErrClosed
	}
	key := p.entryKey(c.wholeLocked, func(k cacheKey) bool { return c.entries[k] != nil })
	e := c.entries[key]
	if e == nil {
		var err error
		if e, err = create(key, p); err != nil {
			return nil, err
		}
		e.key = key
		c.entries[key] = e
		c.reindexLocked()
		if c.start != nil {
			e.stop = c.start(e)
		}
	}
	e.users++
	if e.linger != nil {
		e.linger.Stop()
		e.linger = nil
	}
	return e, nil
}

// wholeLocked returns the key of the first store of whole objects that serves a request for their metadata.
func (c *catalog) wholeLocked(p *plan) (found cacheKey, ok bool) {
	for _, e := range c.entries {
		if p.isServedBy(e.key, e.store.opt.Content) && (!ok || e.key.compare(found) < 0) {
			found, ok = e.key, true
		}
	}
	return found, ok
}

// release removes one user of a store.
func (c *catalog) release(e *cacheEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.users--
	if e.users > 0 || c.ended {
		return
	}
	if c.linger <= 0 {
		c.retireLocked(e)
		return
	}
	var mine *time.Timer // a handle may be acquired and released again before the timer fires
	mine = time.AfterFunc(c.linger, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.linger == mine && e.users == 0 {
			c.retireLocked(e)
		}
	})
	e.linger = mine
}

// retire removes a store, so that later requests get another one, and ends its watch.
func (c *catalog) retire(e *cacheEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retireLocked(e)
}

// retireLocked is retire for a caller that holds the lock.
func (c *catalog) retireLocked(e *cacheEntry) {
	if e.gone {
		return
	}
	e.gone, e.linger = true, nil
	e.claim.end()
	delete(c.entries, e.key)
	c.reindexLocked()
	if e.stop != nil {
		e.stop()
		return
	}
	e.claim.release()
	e.store.Close()
}

// rename changes the namespaces in the key of a store. changed is false if they are the same. It returns ErrClosed for
// a store that has been retired, or whose user has released it.
func (c *catalog) rename(e *cacheEntry, namespaces string, isReleased func() bool) (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended || e.gone || isReleased(): // after the release the store may belong to others
		return false, ErrClosed
	case e.key.namespaces == namespaces:
		return false, nil
	}
	delete(c.entries, e.key)
	e.key.namespaces, e.key.moved = namespaces, 0
	if c.entries[e.key] != nil { // another store has these namespaces; both stay
		c.moves++
		e.key.moved = c.moves
	}
	c.entries[e.key] = e
	scope := e.key.scope()
	e.store.scope.Store(&scope)
	c.reindexLocked()
	return true, nil
}

// reindexLocked updates the index.
func (c *catalog) reindexLocked() {
	c.index.replace(slices.SortedFunc(maps.Values(c.entries), func(a, b *cacheEntry) int {
		return a.key.compare(b.key)
	}))
}

// storesByResource are the stores of each resource, in the order of their keys.
type storesByResource map[schema.GroupVersionResource][]*Store

// storeIndex finds stores by their resource, without a lock.
type storeIndex struct {
	current atomic.Pointer[storesByResource] // replaced, never changed
}

// replace indexes the stores of the entries, which are in the order of their keys.
func (x *storeIndex) replace(entries []*cacheEntry) {
	index := storesByResource{}
	for _, e := range entries {
		index[e.key.resource] = append(index[e.key.resource], e.store)
	}
	x.current.Store(&index)
}

// all returns the present index, which is READ-ONLY.
func (x *storeIndex) all() storesByResource { return *x.current.Load() }

// Found caches the result of Cache.Lookup for repeated calls with one resource and one cache. It is safe for concurrent
// use.
type Found struct{ last atomic.Pointer[lookedUp] }

type lookedUp struct {
	index  *storesByResource
	stores []*Store
}

// In is Cache.Lookup with the cached result.
func (f *Found) In(c *Cache, resource schema.GroupVersionResource) []*Store {
	if c.usable() != nil {
		return nil
	}
	index := c.stores.index.current.Load()
	last := f.last.Load()
	if last == nil || last.index != index {
		last = &lookedUp{index, (*index)[resource]}
		f.last.Store(last)
	}
	return last.stores
}
