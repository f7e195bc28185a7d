package cache

import (
	"github.com/fairlead-io/fairlead/internal/store"
)

// Cache makes the stores of one cluster on demand. All callers that ask for the same objects share one store and one
// watch. The watch ends some time after the last caller has released its handle; see CacheOptions.Linger.
type Cache = store.Cache

// CacheOptions configure a [Cache]. Only Config is needed.
type CacheOptions = store.CacheOptions //nolint:revive // Options alone would suggest options of a watch

// NewCache returns a cache. Its Run method runs the watches. NewCache fails if Config is missing or the options
// contradict each other. A runtime has a cache of its own, so only a program without one needs NewCache.
func NewCache(o CacheOptions) (*Cache, error) { return store.NewCache(o) }

// Handle is a claim to a [Store] of a [Cache]. Release gives up the claim; the store must not be used after that.
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

// Record is one stored version of one object. It never changes, and stays valid as long as it is referenced.
type Record = store.Record

// View reads a [Store] as objects of one Go type. The objects are shared and read-only.
type View[T any] = store.View[T]

// Of returns the view of a store as T, a Kubernetes API type. A nil store has no objects.
func Of[T any](s *Store) View[T] { return store.Of[T](s) }

// IndexBy adds an index over the objects of a view, for use with [View.Index]. fn returns the values of an object, and
// must not change the object. An object for which fn panics is not in the index. IndexBy fails if the view has no
// store, or the store has another index of that name.
func IndexBy[T any](v View[T], name string, fn func(*T) []string) error {
	return store.IndexBy(v, name, fn)
}

// The indexes that every store has.
const (
	IndexNamespace = store.IndexNamespace // by namespace
	IndexLabel     = store.IndexLabel     // by label, as "name=value"
	IndexOwner     = store.IndexOwner     // by the uid of an owner
)

// Content restricts what a store holds of each object. The zero value holds everything but managedFields.
type Content = store.Content

// ErrNotFound is returned for a key that a store does not have.
var ErrNotFound = store.ErrNotFound

// ErrMetadataOnly is returned if a store holds metadata only and an object is read as another type than
// metav1.PartialObjectMetadata.
var ErrMetadataOnly = store.ErrMetadataOnly

// DecodeError is returned for a stored object that cannot be decoded.
type DecodeError = store.DecodeError
