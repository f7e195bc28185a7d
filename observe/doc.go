// Package observe delivers changes of Kubernetes objects to functions that declared their interest.
//
// An observer says which events it wants, a source says where objects come from, and a shared [Selector] pairs
// them. Neither knows the other; both are declared in any order, in any package, usually next to the code that
// cares:
//
//	var CertainConfigMaps = observe.Selector("certain-configmaps")
//
//	observe.Source[corev1.ConfigMap](rt, CertainConfigMaps, source.Namespaces("team-a"), source.Labels("app=web"))
//	observe.On(rt, CertainConfigMaps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
//		slog.InfoContext(ctx, "configmap", "type", e.Type, "key", e.Key)
//		return nil
//	})
//
// Nothing is requested from the API server before the host (normally the fairlead runtime) starts. Then every
// declaration is checked, and all mistakes are reported together with the file and line of each.
//
// # Guarantees
//
//   - One watch per source, however many observers; a source without an observer is never listed.
//   - A sync observer is called for one event at a time, in the order of the changes. An async observer is called
//     for several keys at once, up to its limit, and in order per key.
//   - An observer that is slow, fails or panics delays and disturbs no other one. What a slow observer has not been
//     given yet costs memory per key, not per event: it gets the latest state, and deletions in between are kept.
//   - [Event.Prior] is the state that this observer was given last (invariant W3), and when the observer runs, the
//     known state is at least as new as the event (W5).
//   - Synchronized is delivered once, after the observer has handled its own initial objects (W6).
//
// Objects are shared and read-only: every observer of an event is given the same pointer. Use DeepCopy before a
// change.
package observe
