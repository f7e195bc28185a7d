package cache

import (
	"github.com/fairlead-io/fairlead/internal/store"
)

// Cache makes the stores of one cluster on demand. All callers that ask for the same objects share one store and one
// watch. The watch ends some time after the last caller has released its handle; see CacheOptions.Linger. Its methods:
//
//   - Run(ctx) error watches the requested objects until ctx is done. It can be called once. A runtime calls it.
//   - Acquire(gvk, options...) (*Handle, error) returns a claim to the store of a kind; see also [AcquireFor].
//   - Lookup(gvr) []*Store returns the stores of a resource, those without a selector first. The slice is read-only.
//   - Stores(gvr) []*Store is like Lookup in no particular order; for an empty gvr it returns all stores.
//
// Further methods serve the client, the observers and the controllers of this module.
type Cache = store.Cache

// CacheOptions configure a [Cache]. Only Config is needed. The fields:
//
//   - Config *rest.Config: the address and the credentials of the API server.
//   - Scheme *runtime.Scheme: the Go types. Default: the scheme of client-go.
//   - Mapper meta.RESTMapper: kinds and resources. Default: it asks the server when it has to.
//   - Source []Option: options of every watch, applied before those of a caller.
//   - Contents map[schema.GroupKind]Content: what the stores of each kind hold; the empty kind stands for all others.
//   - Linger time.Duration: how long an unused store is still watched. 0 means 30 s; a negative value, no time.
//   - Dir string: an existing directory of this program alone, where stores are saved and from where they resume
//     without a list. It is as secret as the watched objects. Default: stores are not saved. Stores of slots and stores
//     with Content.Keep are never saved.
//   - SaveEvery time.Duration: how often a changed store is saved. 0 means 5 minutes.
//   - Store.HotBytes int64: decoded objects that each store retains without a user, in bytes. 0 means 32 MiB.
//   - Store.DetectMutation bool: report code that changes a shared object; for tests.
//   - OnWatch func(ctx context.Context, s *Store): runs in a goroutine of its own while a store is watched. ctx ends
//     with the watch, and Run waits for the function. Default: none.
//   - Logger *slog.Logger: default none.
//   - TracerProvider trace.TracerProvider: default none.
type CacheOptions = store.CacheOptions //nolint:revive // Options alone would suggest options of a watch

// NewCache returns a cache. Its Run method runs the watches. NewCache fails if Config is missing or the options
// contradict each other. A runtime has a cache of its own, so only a program without one needs NewCache.
func NewCache(o CacheOptions) (*Cache, error) { return store.NewCache(o) }

// Handle is a claim to a [Store] of a [Cache]. It has all methods of its store, and:
//
//   - Store *Store is the field with the store.
//   - Release() gives up the claim. The store must not be used after that.
//   - SetNamespaces(namespaces...) error changes the watched namespaces, for all handles of the store. None means all.
type Handle = store.Handle

// AcquireFor returns a claim to the store of a Go type that the scheme of the cache knows. It fails for a type that the
// scheme does not know, and for a cache that NewCache has not made.
func AcquireFor[T any](c *Cache, options ...Option) (*Handle, error) {
	return store.AcquireFor[T](c, options...)
}

// Store is the last known state of the objects of one kind. Reads take no lock, and include the program's own writes.
// [Of] reads a store as Go objects. Its methods:
//
//   - Synced() <-chan struct{} is closed when every namespace that the server does not refuse has been listed once.
//   - HasSynced() bool reports the same. Unlisted() []string has a message for each namespace that was not listed.
//   - Get(Key) (*Record, bool) returns one object.
//   - Len() int returns the number of objects.
//   - Snapshot() returns one consistent version of all objects, with All, InNamespace, Select and Index.
//   - WaitFor(ctx, resourceVersion) error waits until the store knows all changes up to that version.
//   - Barrier(ctx) error waits until the store knows all that the server has now. It costs a list of the metadata.
//   - Version() string is the resourceVersion up to which all changes are known; "" before the first list.
//   - RemoveIndex(name) removes an index of [IndexBy].
//   - Quarantined() lists objects that could not be read, Undecoded() those that no Go type could hold.
//
// Further methods serve the client, the observers and the controllers of this module.
type Store = store.Store

// Key names an object by its fields Namespace and Name. Namespace is empty for a cluster-scoped object. String returns
// "namespace/name", or the name alone.
type Key = store.Key

// Record is one stored version of one object. It never changes, and stays valid as long as it is referenced. Its
// methods:
//
//   - Key() Key, Namespace(), Name() string and UID() types.UID identify the object.
//   - Version() string is its resourceVersion, Generation() int64 its generation.
//   - Deleting() bool reports a deletion timestamp, Finalizers() int counts the finalizers.
//   - Label(key) (string, bool) returns a label; AllLabels() yields all.
//   - Owners() lists the owner references; Controller() (owner, bool) returns the controlling one.
//   - As(reflect.Type) (any, error) returns the decoded object that all readers share.
//   - DecodeInto(obj) error decodes into an object of the caller.
//   - AppendJSON(dst) ([]byte, error) appends the object as JSON.
//   - Raw() []byte returns a copy of the stored bytes.
//   - Dropped() []string names the fields of the object that [Content] has dropped.
type Record = store.Record

// View reads a [Store] as objects of one Go type. The objects are shared and read-only. Its methods:
//
//   - Get(Key) (*T, error) returns one object. The error is [ErrNotFound] or a *[DecodeError].
//   - All() iter.Seq2[Key, *T] yields every object of one version of the store.
//   - InNamespace(namespace), Select(labels.Selector) and Index(name, value) yield some of them.
//   - List(records) ([]*T, error) returns the objects of a sequence of a snapshot, with an error for each that cannot
//     be decoded. The other methods omit such objects.
//   - Store() *Store returns the store.
type View[T any] = store.View[T]

// Of returns the view of a store as T, a Kubernetes API type. A nil store has no objects.
func Of[T any](s *Store) View[T] { return store.Of[T](s) }

// IndexBy adds an index over the objects of a view, for use with [View.Index]. fn returns the values of an object, and
// must not change the object. An object for which fn panics is not in the index. IndexBy fails if the view has no
// store, or the store has another index of that name. A source has no store before it has started:
// fairlead.IndexField declares an index earlier, for every store of a kind.
func IndexBy[T any](v View[T], name string, fn func(*T) []string) error {
	return store.IndexBy(v, name, fn)
}

// The indexes that every store has.
const (
	IndexNamespace = store.IndexNamespace // by namespace
	IndexLabel     = store.IndexLabel     // by label, as "name=value"
	IndexOwner     = store.IndexOwner     // by the uid of an owner
)

// Content restricts what a store holds of each object. The zero value holds everything but managedFields. The fields:
//
//   - ManagedFields bool keeps the managedFields. A change of them alone is then a change of the object.
//   - Metadata bool keeps the metadata only, and asks the server for no more.
//   - Drop []string names fields to cut out on arrival, such as "data", "spec.template" or
//     "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]". A path goes through objects and maps,
//     not through lists. The fields by which a store finds objects cannot be dropped, such as name, uid and labels.
//   - Keep func(namespace, name string, labels map[string]string) bool excepts the objects for which it returns true
//     from Drop. It is called for each version of an object that arrives. It must depend on its arguments alone, be
//     safe for concurrent use, and not change labels. A store with Keep is not saved.
//   - Transform func(any) (any, error) changes each decoded object before a reader gets it, as a pointer of the
//     reader's type. It changes no stored bytes. It must be idempotent and safe for concurrent use.
//
// Check() error returns the mistakes of a Content, such as a malformed path.
type Content = store.Content

// ErrNotFound is returned for a key that a store does not have.
var ErrNotFound = store.ErrNotFound

// ErrMetadataOnly is returned if a store holds metadata only and an object is read as another type than
// metav1.PartialObjectMetadata.
var ErrMetadataOnly = store.ErrMetadataOnly

// DecodeError is returned for a stored object that cannot be decoded. Its fields are Key, the Go type Type that the
// reader asked for, and the cause Err, which Unwrap returns.
type DecodeError = store.DecodeError
