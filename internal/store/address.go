package store

import (
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Functions for observers of requests: they find the stores that a request is about.

// Server returns the address of the server that the cache watches: scheme, host and the path prefix of the API, if any.
// It returns nil for a cache that NewCache has not made. The caller owns the result.
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
