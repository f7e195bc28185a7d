// Package client reads and writes objects of a cluster: typed reads from the store, where a kind is watched, and writes
// whose answers the next read sees at once.
//
//	c, err := client.New(client.Options{Config: cfg, Cache: cache, Scheme: scheme})
//
//	pod, err := client.Get[corev1.Pod](ctx, c, client.Key{Namespace: "team-a", Name: "web-0"}) // shared, read-only, no copy
//	for pod, err := range client.List[corev1.Pod](ctx, c, client.InNamespace("team-a"), client.Labels("app=web")) { … }
//
//	var own corev1.Pod
//	err = c.Get(ctx, key, &own) // a copy of one's own
//
//	err = client.Modify(ctx, c, &own, func(p *corev1.Pod) error { p.Labels["seen"] = "true"; return nil })
//
// # Reads
//
// A read of a kind that is watched comes from the store and costs no request: own writes are laid over it, so that the
// same pass can go on (C1), and what was deleted is not found (C2). A read of a kind, or of a namespace, that is not
// watched, of a whole object where only metadata is watched, or not listed yet, is a request to the server, as is one
// through [Client.Live], and one of an object whose last write the watch has not brought for too long. A watch of some
// labels answers a Get of what has them, and a List that selects them, or them and more. [Get] and [List] hand out the
// store's shared objects: they are READ-ONLY. The methods fill an object of the caller's own.
//
// A cache that is behind is not believed against the caller: that an object is absent, is another one, or has already
// what is to be written is confirmed by the server when the caller has read something newer, or would be refused
// because of it.
//
// [OwnedBy] lists what an object owns, [Index] by any index of the store.
//
// Objects from the store lack their managedFields, and what else the store is told to drop (cache.Content).
//
// # Writes
//
// Create, Update, Patch, Apply, Delete and DeleteCollection, and all but the last for subresources, go through package
// call and its retry rules. The answer is put over the store before the method returns, and into the object that was
// given. A write that would change nothing of what the cache shows is not sent, unless it is told [Always].
//
// A write that was made is never an error because the cache is late. One that failed and may have been made all the
// same (call.ErrOutcomeUnknown) is asked for before the method returns, or else by the next read. Where the answer
// cannot be laid over the store (a field selector that only the server can evaluate; subresources that are answered
// without the object) the watch has a tenth of a second to bring it, and then the server is asked for this one object.
//
// Prefer [Modify] and Apply to Update. Modify applies a function to the freshest known state, sends the difference with
// the resourceVersion that it was computed from, and does it again after a conflict. An Update replaces the whole
// object: what the Go type does not know is removed, which is refused where the cache shows it ([ErrPruned]), as is
// that of an object that lacks what the cache drops ([DroppedError]), and with a conflict nothing is tried again.
//
// [Client.Replace] is the lean one, for those who hold the object in exactly the version that they change: one
// request, no look at the cache, and nothing of the answer is read but its header.
//
// Apply takes objects and apply configurations ([Applicable]) that say what is wanted and nothing else. One that was
// read holds what users and other managers set, and is refused ([ErrWasRead]).
//
// # Programs of client-go
//
// [Overlay] is a transport that does for clientsets, dynamic and metadata clients what a Client does: what they write
// is laid over the stores of a cache before their call returns.
//
// # Who may write
//
// A client that is bound ([Client.Bound]) asks its fence before each request; the error of one that may not be sent
// matches [ErrFenced]. The code of users, which is given a client and a context, has the binding in the context
// ([Bind]); that of a fiber of package flow that was preempted may not send anything either. Updates, patches and
// applies of a fiber, or with Binding.RequireVersion, carry the resourceVersion that they were computed from, so that
// one on the wire can only conflict.
//
// # Waiting
//
// [When], [Condition] and [Gone] are waits of package flow: evaluated at once, on each event, and live every so often.
//
// A [Client] is safe for concurrent use. It has no goroutine; Close ends the subscriptions of its waits.
package client
