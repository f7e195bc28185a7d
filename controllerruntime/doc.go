// Package controllerruntime runs the caches and clients of controller-runtime on the stores of Fairlead. An operator
// changes two lines and keeps the rest of its code:
//
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
//		NewCache:  controllerruntime.NewCache,
//		NewClient: controllerruntime.NewClient,
//	})
//
// The stores keep objects compactly. Reads see the operator's own writes at once: by get, list and index, for typed
// objects, unstructured objects and metadata.
//
// # How it works
//
// controller-runtime still implements defaults, namespaces, ByObject, DisableFor, schemes and the client. This package
// replaces two parts below them. cache.Options.NewInformer returns a cache.SharedIndexInformer over a cache.Store. The
// HTTP transport of the manager applies the answers to writes to the stores, so the cache shows the writes of all
// clients with the manager's HTTP client. [InUse] tells whether the stores are in use.
//
// # Differences
//
//   - A slow handler receives folded changes: the latest state of each object instead of every change.
//   - A replacement (same name, different uid) causes OnDelete and OnAdd, even if only a list reveals it.
//   - A list without changes calls no handler.
//   - A transform runs each time an object is decoded, so it must be idempotent.
//   - An object without a deep copy (UnsafeDisableDeepCopy, handlers) is shared, also with readers of other informers
//     of its type. It is READ-ONLY, as with controller-runtime.
//   - The indexer of an informer is read-only: its Add, Update, Delete and Replace return [ErrReadOnly].
//   - If an index function fails or panics, the object is missing from that index and the error is reported. client-go
//     ends the process.
//   - The handler of watch errors is called when a watch starts to fail, and when the reason of the failure changes.
//
// Handlers receive events for own writes unless [Options] filter them.
//
// # Invariants
//
//   - A handler receives one event at a time. It has a goroutine only while events are waiting.
//   - A registration is synced once its handler has returned from its last initial object.
//   - A stopped informer keeps its last content and calls no handlers.
package controllerruntime
