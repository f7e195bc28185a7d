// Package store keeps the last known state of a Kubernetes resource: compactly, indexed, with a change log that every
// subscriber reads at its own pace, and with the answers to our own writes laid over it.
//
//	s := store.New(store.Options{Resource: gvr, Kind: gvk, Scheme: scheme})
//	src, err := source.New(source.Config{REST: cfg, Resource: gvr}, s.Sink)
//	go src.Run(ctx)
//	<-s.Synced()
//
//	pods := store.Of[corev1.Pod](s)
//	pod, err := pods.Get(store.Key{Namespace: "team-a", Name: "web-0"})        // shared, READ-ONLY
//	for key, pod := range pods.Index(store.IndexLabel, "app=web") { ... }      // one version, blocks nobody
//
//	c := s.Subscribe(store.SubscribeOptions{})                                 // snapshot, then live
//	defer c.Close()
//	for {
//		e, err := c.Next(ctx)
//		...
//	}
//
// A [Cache] makes the stores of one cluster on demand and shares them.
//
// # Decoded objects are read-only
//
// An object is kept as the bytes that the server sent, without managedFields, and decoded when somebody reads it. All readers of one
// version get the same pointer. Copy it (DeepCopy) before changing anything in it. Options.DetectMutation finds those
// who do not.
//
// # Invariants
//
//   - W1: per key, the versions that a subscriber is given never go down, unless an EPOCH came in between.
//   - W2: per key and uid: ADDED, MODIFIED*, DELETED. A changed uid is DELETED, then ADDED. One exception: an object that only the
//     overlay knew, and that a list omits, is DELETED (inferred) although it never was ADDED.
//   - W3: the prior state of an event is what that subscriber was given last.
//   - W4: at rest, server, store, and the fold of each unfiltered subscriber's events are equal; indexes too.
//   - W5: when an event is given, reads are at least as new as it.
//   - W6: SYNCED comes once per subscriber, in the Take after the one that ended the initial objects.
//   - W10: a subscriber that does not take its events costs memory per key, not per event.
//   - W11: a replacement that is not committed changes nothing.
//   - C1: after the answer to a write was put, every read sees that write or something newer.
//   - C2: after a delete was answered, no read sees that incarnation.
//   - C3: a foreign change is never taken for the echo of an own write.
//   - No wait for a version waits for a bookmark: what the watch does not settle soon a list of the metadata does, one for all who wait.
//
// # How it works
//
// There is one immutable [state] at a time, made of persistent tries; a write makes the next one, which shares nearly
// everything, and publishes it with one pointer. So reads take no lock, a snapshot is a pointer, and a list of 100,000 objects becomes
// visible at once. What the server has told is the base; with own writes laid over it, it is the merged state, which is read. Without own writes
// they are the same pointer. Writers, of which there is one per scope, take turns.
//
// Reading order: event.go and record.go (what users see), state.go with package internal/trie and intern.go, sink.go and replacement.go
// (how it is filled), log.go, coalesce.go and cursor.go (how it is followed), overlay.go with tombstone.go, settle.go,
// ledger.go and echo.go (own writes), wait.go and survey.go (how it is waited for), encoded.go with package internal/pack
// (how it is kept small), view.go, decode.go and hot.go (how it is read), cache.go.
//
// Locks, in the order in which they may be taken: Cache.mu, Store.mu, Cursor.mu, ledger.mu, those of package
// internal/pack; each of hotSet.mu and interner.mu is a leaf. None is held while user code runs.
package store
