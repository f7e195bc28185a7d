// Package observe delivers changes of Kubernetes objects to functions that the program declares as observers.
//
// A source declares which objects are watched. An observer declares a function and the events that it receives. A
// shared [Selector] connects the two. Sources and observers do not refer to each other; they are declared in any order
// and in any package, usually next to the code that uses them:
//
//	var CertainConfigMaps = observe.Selector("certain-configmaps")
//
//	observe.Source[corev1.ConfigMap](rt, CertainConfigMaps, cache.Namespaces("team-a"), cache.Labels("app=web"))
//	observe.On(rt, CertainConfigMaps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
//		slog.InfoContext(ctx, "configmap", "type", e.Type, "key", e.Key)
//		return nil
//	})
//
// The package sends no requests before the host, normally the fairlead runtime, starts. The host then checks all
// declarations and reports all mistakes together, each with file and line.
//
// # Observers
//
// An observer receives all events, including those for initial objects, unless [Only] restricts them. It is called for
// one event at a time, in the order of the changes. With [Async] it is called for several keys concurrently, in order
// per key. An error or a panic affects only that observer; [OnFailure] sets how the event is then handled. The type T
// of an observer is that of the source, or metav1.PartialObjectMetadata; [OnObject] takes objects of any type.
// [Observer.Remove] ends the observer and may be called from within it.
//
// # Sources
//
// [Source] and [SourceFunc] watch objects with a Go type; [SourceOfKind] watches objects without one. [Filter], [Map]
// and [Join] derive sources from other sources. [Known] returns the known state of a source as a typed collection. The
// first observer opens a source and the removal of the last one closes it, also while the host runs.
// [Origin.SetNamespaces] changes the watched namespaces of a running source. The watch of a closed source continues for
// 30 seconds, so a source that is reopened soon needs no list. fairlead.WithLinger, or Linger of [cache.CacheOptions],
// changes this time.
//
// # Guarantees
//
//   - Each source has one watch and decodes an event once per type, however many observers there are. A source without
//     an observer is never listed.
//   - Objects that no observer requests are not decoded. An object that cannot be decoded is given up before the call,
//     based on its bytes and the type; a called observer always gets the object that it requests.
//   - A sync observer is called for one event at a time, in the order of the changes. An async observer is called for
//     several keys concurrently, up to its limit, in order per key. Both kinds may share a source and keep their
//     orders.
//   - An observer that is slow, fails or panics does not delay or affect others. Undelivered changes cost memory per
//     key, not per event: a slow observer gets the latest state of a key and all deletions.
//   - [Event.Prior] is the state that this observer last received (invariant W3). During a call, the known state is at
//     least as new as the event (W5).
//   - Synchronized is delivered once, after the observer has handled its own initial objects (W6).
//   - An idle observer has no goroutine. One for all observers of a source waits for the next event. After
//     [Registry.Stop] no goroutine is left.
//
// Objects are shared and read-only: all observers of an event get the same pointer. Use DeepCopy before a modification.
//
// # Parts
//
// [Registry] holds one lock, Registry.mu, and connects these parts. It runs no user code under the lock.
//
//   - declarations (declarations.go, metadata.go): the graph of sources and observers. Registry.mu guards it, and the
//     attachment of each [Observer] and the openState of each [Origin] (origin.go). check.go finds its mistakes, and
//     status.go names what is not synced.
//   - running (run.go): opens sources, retries and subscribes observers, from Start to Stop. It shares Registry.mu,
//     because a declaration during the run changes both.
//   - delivery (delivery.go): the events of one observer, with its workers (async.go, own mutex), its age (behind.go,
//     own mutex) and the prediction of decoding (demand.go, atomic).
//   - gate (share.go): admission of calls by slot; the lock of handover.Slots.
//   - derivation (derivation.go, quarantine.go): one derived source; its mutex serializes the sink of the derived
//     store.
//   - snapshot (describe.go): a copy of the declarations, described without the lock; metrics.go reads descriptions.
//
// Lock order: Registry.mu, then those of deliveries and stores. derivation.mu is never held with Registry.mu.
package observe
