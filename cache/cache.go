package cache

import (
	"github.com/fairlead-io/fairlead/internal/store"
)

// Cache makes the stores of one cluster on demand. All callers that ask for the same objects share one store and one
// watch, which ends when the last caller has released it.
type Cache = store.Cache

// CacheOptions configure a [Cache]. Only Config is needed.
type CacheOptions = store.CacheOptions //nolint:revive // Options alone would not say whose: options of watches are an Option

// NewCache returns a cache that watches when its Run method is called. It fails when CacheOptions contradict themselves.
// A runtime has a cache of its own; a program needs NewCache only without one.
func NewCache(o CacheOptions) (*Cache, error) { return store.NewCache(o) }

// Handle is a claim to a [Store] of a [Cache]. Release gives it up; the store must not be used after that.
type Handle = store.Handle

// AcquireFor returns a claim to the store of a Go type that the scheme of the cache knows. It fails for a type that the
// scheme does not know, and for a cache that NewCache has not made.
func AcquireFor[T any](c *Cache, options ...Option) (*Handle, error) {
	return store.AcquireFor[T](c, options...)
}

// Store is the last known state of the objects of one kind. Reads take no lock.
type Store = store.Store

// Key names an object. Namespace is empty for a cluster-scoped object.
type Key = store.Key

// Record is one stored version of one object. It never changes, and stays valid for as long as a caller holds it.
type Record = store.Record

// View reads a [Store] as objects of one Go type. The objects are shared and read-only.
type View[T any] = store.View[T]

// Of returns the view of a store as T, a Kubernetes API type. A nil store has no objects.
func Of[T any](s *Store) View[T] { return store.Of[T](s) }

// IndexBy adds an index over the objects of a view, by which [View.Index] finds them. fn returns the values of an
// object, and must not change the object. An object for which fn panics is not in the index. IndexBy fails when the view
// has no store, or the store has another index of that name.
func IndexBy[T any](v View[T], name string, fn func(*T) []string) error {
	return store.IndexBy(v, name, fn)
}

// The indexes that every store has.
const (
	IndexNamespace = store.IndexNamespace // by namespace
	IndexLabel     = store.IndexLabel     // by label, as "name=value"
	IndexOwner     = store.IndexOwner     // by the uid of an owner
)

// Content is the part of each object that a store holds. The zero value holds everything but managedFields.
type Content = store.Content

// ErrNotFound is returned for a key that a store does not have.
var ErrNotFound = store.ErrNotFound

// ErrMetadataOnly is returned for an object that is read as another type than metav1.PartialObjectMetadata, although its
// store holds metadata only.
var ErrMetadataOnly = store.ErrMetadataOnly

// DecodeError is returned for a stored object that cannot be decoded.
type DecodeError = store.DecodeError
