package store

import (
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What tells those who see requests pass which stores these are about.

// Server returns the address of the server that the cache watches: scheme, host, and the path in front of those of the
// API, if there is one. nil for a cache that NewCache has not made. The caller owns it.
func (c *Cache) Server() *url.URL {
	if c.usable() != nil {
		return nil
	}
	server := *c.server
	return &server
}

// LookupAll returns the stores of all versions of a resource, in no particular order.
func (c *Cache) LookupAll(resource schema.GroupResource) (stores []*Store) {
	if c.usable() != nil {
		return nil
	}
	for of, have := range *c.byResource.Load() {
		if of.GroupResource() == resource {
			stores = append(stores, have...)
		}
	}
	return stores
}
