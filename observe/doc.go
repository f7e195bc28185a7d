// Package observe delivers changes of Kubernetes objects to functions that declared their interest.
//
// An observer says which events it wants, a source says where objects come from, and a shared [Selector] pairs
// them. Neither knows the other; both are declared in any order, in any package, usually next to the code that
// cares:
//
//	var CertainConfigMaps = observe.Selector("certain-configmaps")
//
//	observe.Source[corev1.ConfigMap](rt, CertainConfigMaps, cache.Namespaces("team-a"), cache.Labels("app=web"))
//	observe.On(rt, CertainConfigMaps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
//		slog.InfoContext(ctx, "configmap", "type", e.Type, "key", e.Key)
//		return nil
//	})
//
// Nothing is requested from the API server before the host (normally the fairlead runtime) starts. Then every
// declaration is checked, and all mistakes are reported together with the file and line of each.
//
// # Observers
//
// An observer is given everything, initial objects included, unless [Only] restricts it. It is called for one event at
// a time, in the order of the changes; [Async] calls it for several keys at once, in order per key. An error or a panic
// concerns that observer only, and [OnFailure] says what becomes of the event. Its type T is that of the source, or
// metadata of any; [OnObject] takes what there is. [Observer.Remove] ends it, also from within.
//
// # Sources
//
// [Source] and [SourceFunc] watch; [SourceOfKind] watches what has no Go type. [Filter], [Map] and [Join] derive
// sources from others, for observers like any other. [Known] gives the known state of a source as a typed collection. A
// source is opened with its first observer and closed with its last, also while the host runs; [Origin.SetNamespaces]
// changes what it covers meanwhile. A watch goes on for 30 seconds after its source was closed, so that one that is
// opened again soon needs no list: fairlead.WithLinger changes that, or Linger of [cache.CacheOptions].
//
// # Guarantees
//
//   - One watch per source and one decoding per event and type, however many observers; a source without an observer is
//     never listed.
//   - What an observer does not ask for is not decoded. An object that cannot be decoded is given up before the
//     observer is called, by what its bytes and the type tell: once called, it gets what it asks for.
//   - A sync observer is called for one event at a time, in the order of the changes. An async observer is called
//     for several keys at once, up to its limit, and in order per key. Both on one source weaken neither.
//   - An observer that is slow, fails or panics delays and disturbs no other one. What a slow observer has not been
//     given yet costs memory per key, not per event: it gets the latest state, and deletions in between are kept.
//   - [Event.Prior] is the state that this observer was given last (invariant W3), and when the observer runs, the
//     known state is at least as new as the event (W5).
//   - Synchronized is delivered once, after the observer has handled its own initial objects (W6).
//   - An idle observer has no goroutine. After [Registry.Stop] none is left.
//
// Objects are shared and read-only: every observer of an event is given the same pointer. Use DeepCopy before a
// change.
//
// # Reading order
//
// Each file rests on those before it, with few exceptions:
//
//   - what a user writes and gets: selector.go, errors.go, demand.go, event.go, option.go;
//   - what is declared: registry.go, origin.go, observer.go, host.go;
//   - how events reach an observer: latch.go, async.go, delivery.go, stats.go, lifecycle.go;
//   - sources made of others: quarantine.go, derivation.go, derive.go, collection.go;
//   - looking at it: describe.go, metrics.go.
package observe
