// Package client reads and writes Kubernetes objects. Reads of a watched kind come from the store of its cache; all
// other reads ask the server. A write changes the store before it returns, so the next read sees it.
//
//	c, err := client.New(client.Options{Config: cfg, Cache: cache, Scheme: scheme})
//
//	pod, err := client.Get[corev1.Pod](ctx, c, client.Key{Namespace: "team-a", Name: "web-0"}) // shared, READ-ONLY
//	web := client.Labels("app=web")
//	for pod, err := range client.List[corev1.Pod](ctx, c, client.InNamespace("team-a"), web) { … }
//
//	var own corev1.Pod
//	err = c.Get(ctx, key, &own) // a private copy
//
//	err = client.Modify(ctx, c, &own, func(p *corev1.Pod) error { p.Labels["seen"] = "true"; return nil })
//
// # Reads
//
// A read of a watched kind comes from the store and costs no request. The client's own writes are visible to it at once
// (C1), and objects that the client deleted are not found (C2). These reads ask the server instead:
//
//   - reads of a kind or a namespace that is not watched or not listed yet;
//   - reads of whole objects where only their metadata is watched;
//   - reads through [Client.Live];
//   - reads of an object whose last write has not arrived through the watch for too long.
//
// A watch with a label selector answers a Get of an object that matches it. It answers a List whose selector contains
// all requirements of the watch's selector.
//
// The functions [Get] and [List] return the store's shared objects, which are READ-ONLY. The methods of [Client] fill
// an object that the caller owns.
//
// The client compares the cache with the versions that the caller has already read. An older cache is not trusted: the
// server confirms that an object is absent, was replaced, or needs no change. The server also confirms that an object
// is absent or was replaced before a write fails for that reason.
//
// [OwnedBy] lists the objects that an owner owns, and [Index] lists by any index of the store, such as one of
// fairlead.IndexField.
//
// Objects from the store lack their managedFields and all other fields that the store drops (cache.Content).
//
// # Writes
//
// Create, Update, Patch, Apply, Delete and DeleteCollection use package call and its retry rules. All but
// DeleteCollection also write subresources. Before a method returns, it stores the server's answer in the cache and in
// the object that the caller passed. The client does not send a write that would change nothing in the cached object,
// unless the caller passes [Always].
//
// A write that succeeded never returns an error because the cache is late. If a failed write may have been made
// (call.ErrOutcomeUnknown), the client asks the server before the method returns; if that fails, the next read asks.
// Some answers cannot be stored: the watch has a field selector that only the server can evaluate, or a subresource
// answers without the object. Then the client waits 0.1 s for the watch, and after that reads this object from the
// server.
//
// Prefer [Modify] and Apply to Update. Modify applies a function to the freshest known state and sends the difference
// with the resourceVersion of that state. After a conflict it repeats both. Update replaces the whole object, so the
// server removes fields that the Go type does not know. The client refuses such an Update if the cache shows such
// fields ([ErrPruned]). It also refuses an Update of an object that lacks the fields that the cache drops
// ([DroppedError]). Update does not retry after a conflict.
//
// [Client.Replace] is the cheapest write, for callers that hold the object in exactly the version that they change. It
// sends one request, does not consult the cache, and decodes only the header of the answer.
//
// Apply takes objects and apply configurations ([Applicable]) that contain only the wanted fields. An object that was
// read also holds the fields of users and other managers, so Apply refuses it ([ErrWasRead]).
//
// # Programs that use client-go
//
// [Overlay] is an http.RoundTripper that gives clientsets, dynamic clients and metadata clients the same consistency.
// It adds their writes to the stores of a cache before the call returns.
//
// # Permission to write
//
// The context of a reconciler or an observer has a fence, which the client calls before each request. If the fence
// refuses, for example because another process leads now, the error matches [ErrFenced]. A preempted fiber of package
// flow cannot send requests either. Updates, patches and applies of a fiber or of a leader carry the resourceVersion
// that they were computed from. A request that is already on the wire can then only conflict.
//
// # Waiting
//
// [When], [Condition] and [Gone] are waits of package flow. They evaluate their condition at once, on each event, and
// periodically on the server's answer.
//
// A [Client] is safe for concurrent use. It starts no goroutine; Close ends the subscriptions of its waits.
//
// # Parts
//
// Client only connects these parts. Clients that are bound from one client share all of them but the permission.
//
//   - kinds (kind.go): the kind of a Go type or object; two sync.Maps.
//   - stores (stores.go): the stores that can answer a read; constant.
//   - permission and server (request.go): whether and how a request is sent; constant.
//   - reader (read.go): reads from the stores, or else from the server; no state.
//   - writer (write.go, apply.go, delete.go) and one writing (write.go) for each write; its cachedObject (cached.go,
//     dropped.go) is what the stores show of the object. Updates are compared in update.go, modification (modify.go) is
//     the loop of [Modify]. They belong to one call.
//   - relisting (relist.go): the stores after a [Client.DeleteCollection]; it belongs to one call.
//   - applied (applied.go): the memory of equal applies; own mutex, locked alone.
//   - waits (waits.go): the waits on each store; waits.mu before storeWaits.mu, no lock while a wait is woken.
//   - internal/pending: writes in progress and their answers; internal/content: comparison and patches of JSON values;
//     internal/overlay: the transport of [Overlay].
package client
