package store

import (
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// index makes the stores known to Lookup; the caller holds c.mu.
func (c *Cache) index() {
	entries := slices.SortedFunc(maps.Values(c.entries), func(a, b *cacheEntry) int { return a.key.compare(b.key) })
	index := map[schema.GroupVersionResource][]*Store{}
	for _, e := range entries {
		index[e.key.resource] = append(index[e.key.resource], e.store)
	}
	c.byResource.Store(&index)
}

// Lookup returns the stores that there are of one resource, those without a selector first, of these those of whole
// objects before those that drop something and those of metadata, and of these the one of all namespaces. It takes no
// lock and does not allocate. The slice is shared and READ-ONLY.
func (c *Cache) Lookup(resource schema.GroupVersionResource) []*Store {
	if c.usable() != nil {
		return nil
	}
	return (*c.byResource.Load())[resource]
}

// Found remembers what Lookup has found, for who asks for one resource of one cache again and again. It is safe for
// concurrent use.
type Found struct{ last atomic.Pointer[lookedUp] }

type lookedUp struct {
	index  *map[schema.GroupVersionResource][]*Store
	stores []*Store
}

// In is Cache.Lookup.
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

// Stores returns the stores that there are, of one resource or, for the zero value, of all.
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
