package store

import (
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// index updates the stores that Lookup returns. The caller holds c.mu.
func (c *Cache) index() {
	entries := slices.SortedFunc(maps.Values(c.entries), func(a, b *cacheEntry) int { return a.key.compare(b.key) })
	index := map[schema.GroupVersionResource][]*Store{}
	for _, e := range entries {
		index[e.key.resource] = append(index[e.key.resource], e.store)
	}
	c.byResource.Store(&index)
}

// Lookup returns the stores of one resource. Those without a selector come first, among these those of whole objects
// before those that drop fields and those of metadata, and among these the one of all namespaces. Lookup takes no lock
// and does not allocate. The slice is shared and READ-ONLY.
func (c *Cache) Lookup(resource schema.GroupVersionResource) []*Store {
	if c.usable() != nil {
		return nil
	}
	return (*c.byResource.Load())[resource]
}

// Found caches the result of Lookup for repeated calls with one resource and one cache. It is safe for concurrent use.
type Found struct{ last atomic.Pointer[lookedUp] }

type lookedUp struct {
	index  *map[schema.GroupVersionResource][]*Store
	stores []*Store
}

// In is Cache.Lookup with the cached result.
func (f *Found) In(c *Cache, resource schema.GroupVersionResource) []*Store {
	if c.usable() != nil {
		return nil
	}
	index := c.byResource.Load()
	last := f.last.Load()
	if last == nil || last.index != index {
		last = &lookedUp{index, (*index)[resource]}
		f.last.Store(last)
	}
	return last.stores
}

// Stores returns the stores of one resource, or all stores if resource is empty.
func (c *Cache) Stores(resource schema.GroupVersionResource) []*Store {
	if !resource.Empty() {
		return slices.Clone(c.Lookup(resource))
	}
	if c.usable() != nil {
		return nil
	}
	var out []*Store
	for _, stores := range *c.byResource.Load() {
		out = append(out, stores...)
	}
	return out
}
