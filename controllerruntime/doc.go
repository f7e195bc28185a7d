// Package controllerruntime runs the caches and clients of controller-runtime on the stores of Fairlead. An operator
// changes two lines:
//
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
//		NewCache:  controllerruntime.NewCache,
//		NewClient: controllerruntime.NewClient,
//	})
//
// and keeps its code. Its objects are kept compactly, and it reads its own writes at once: by get, list and index,
// typed, unstructured and as metadata.
//
// # How it works
//
// Defaults, namespaces, ByObject, DisableFor, schemes and the client stay those of controller-runtime. Two seams lie
// beneath them. cache.Options.NewInformer makes a cache.SharedIndexInformer over a cache.Store, and the HTTP transport
// of the client lays the answers to writes over the stores.
//
// # What is different
//
//   - A handler that is slow is given folded states: of what happened to an object meanwhile, the outcome.
//   - A replacement (the same name, another uid) is OnDelete and OnAdd, also when only a list shows it.
//   - A list that shows nothing new calls no handler.
//   - A transform runs each time that an object is decoded, so it must be idempotent.
//   - An object without a deep copy (UnsafeDisableDeepCopy, handlers) is shared, with readers of other informers of
//     its type too. It is READ-ONLY, as it was before.
//   - The indexer of an informer is read-only: its Add, Update, Delete and Replace return [ErrReadOnly].
//   - An index function that fails or panics leaves that object out of that index, and is reported; client-go ends the
//     process.
//   - The handler of watch errors is called when a watch begins to fail, and when it fails for another reason.
//
// Own writes are not filtered from the events, unless [Options] ask for it.
//
// # Invariants
//
//   - One event at a time is given to a handler. It has a goroutine only while there are events for it.
//   - A registration has synced once its handler has returned from its last initial object.
//   - An informer that has stopped goes on to show what it showed last, and calls no handler any more.
package controllerruntime
