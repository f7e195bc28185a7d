// Package store keeps an up-to-date copy of the objects of one Kubernetes resource in memory. A [Store] holds the
// objects in a compact encoding, with indexes. Its change log feeds subscribers, each at its own pace. The answer to a
// write of this program (an own write) is laid over the store, so readers see it before the watch delivers it.
//
//	s := store.New(store.Options{Resource: gvr, Kind: gvk, Scheme: scheme})
//	src, err := source.New(source.Config{REST: cfg, Resource: gvr}, s.Sink)
//	go src.Run(ctx)
//	<-s.Synced()
//
//	pods := store.Of[corev1.Pod](s)
//	pod, err := pods.Get(store.Key{Namespace: "team-a", Name: "web-0"})        // shared, READ-ONLY
//	for key, pod := range pods.Index(store.IndexLabel, "app=web") { ... }      // one version, blocks no writer
//
//	d := s.Drain(store.DrainOptions{Consume: func(events []store.Event) bool { ... }}) // snapshot, then live
//	err = d.Run(ctx)
//
// A [Drainer] follows the store for one consumer: it owns wake-ups, draining and closing. A consumer that wants single
// events uses the [Cursor] beneath it, with Subscribe, Next and Close.
//
// A [Cache] makes the stores of one cluster on demand and shares them.
//
// # Decoded objects are read-only
//
// A store keeps an object as the bytes that the server sent, and decodes it on the first read. All readers of one
// version get the same pointer. Copy an object with DeepCopy before changing it. Options.DetectMutation finds readers
// that change a shared object.
//
// # Content
//
// A store keeps everything but managedFields, unless [Content] says otherwise:
//
//	store.New(store.Options{…, Content: store.Content{Drop: []string{"data"}}}) // secrets without their data
//
// Dropped fields are cut out of the bytes on arrival (package internal/cut), for the watch and for the answers to own
// writes. They are not in memory, in saved files or in the quarantine. They are not in logs either if the source has
// NoExcerpts; a [Cache] sets it for contents with Drop. Two requests to a Cache share a store if their readers get the
// same objects.
//
// # Slots
//
// A store with Options.Shard holds the objects of some slots only (source.Config.Shard). An object that leaves with its
// slot is reported as [Left], never as Deleted. An object that comes with its slot is reported as Added, with
// Event.Initial. After Left the object no longer exists for the subscriber. A slow subscriber gets one Left. If the
// object comes back it is Added, even if it has not changed, because another replica may have worked on it. If it is
// deleted after it came back, it is Deleted.
//
// Own writes to objects in held slots are laid over the store, which needs no request. Own writes to other objects are
// not, and their late answers have no effect. Store.Covered reports whether the store can answer a read of a namespace.
// Two requests to a Cache share such a store if they use the same source.Sharding, whichever slots it holds. A store of
// slots is not saved.
//
// # Invariants
//
//   - W1: per key, the versions that a subscriber gets never decrease, except across an EPOCH.
//   - W2: per key and uid, a subscriber gets ADDED, MODIFIED*, then DELETED or LEFT. After LEFT the sequence may start
//     again. A changed uid is DELETED, then ADDED. Exception: an object that only the overlay held, and that a list
//     omits, is DELETED (inferred) although it never was ADDED.
//   - W3: the prior state of an event is the state that the subscriber got last.
//   - W4: at rest, the server, the store, its indexes and the fold of each unfiltered subscriber's events are equal.
//   - W5: when a subscriber gets an event, reads are at least as new as the event.
//   - W6: each subscriber gets SYNCED once, in the Take after the one that ended the initial objects.
//   - W10: a subscriber that does not take its events costs memory per key, not per event.
//   - W11: a replacement that is not committed has no effect.
//   - C1: after the answer to a write was put, every read sees that write or a newer version.
//   - C2: after the answer to a delete was put, no read sees that incarnation.
//   - C3: a foreign change is never taken for the echo of an own write.
//   - A wait for a version does not depend on bookmarks. If the watch does not end it soon, a list of the metadata
//     does. One list serves all waiters.
//
// # Implementation
//
// A store has one immutable state at a time, made of persistent tries (package internal/trie). A write makes the next
// state, which shares nearly all of its memory with the last one, and publishes it with one pointer. So reads take no
// lock, a snapshot is a pointer, and a list of 100,000 objects becomes visible at once. The base state is what the
// server reported. The merged state is the base with own writes laid over it; reads use it. Without own writes both are
// the same pointer. Each scope has one writer, and the writers of a store exclude each other.
//
// # Parts
//
// Store connects the parts, and embeds those whose exported methods are its own. A part has its state to itself. Most
// state has to change in one step with the published root, so it is plain data under one lock, the writer lock.
//
//   - publisher: the published root, the change log, the index definitions. It owns the writer lock.
//   - Record: one version of an object: header, kept bytes, and forms, the decoded objects. Immutable, except for the
//     forms. state, index, facet: one immutable version of all records.
//   - codec connects interner, kept, decoder (with jsonDecoder and targets), hotSet, relatives, mutations and
//     undecoded. It makes records and reads them. The decoder knows no records and has only facts about types. The
//     hotSet alone changes the forms of records, under hotSet.mu; its hotRing decides which decoded objects are held.
//     Locks are leaves. relatives has no lock.
//   - coverage: what is known of one scope, such as version, slots and status. Plain data under the writer lock.
//   - intake, with scope, replacement and statusBoard: fills the base from sources. Sinks under the writer lock; the
//     board has a leaf lock.
//   - overlay: the difference between base and merged state. Plain data under the writer lock. It publishes nothing.
//   - ledger: own writes whose echo is outstanding. A lock of its own.
//   - ownWrites, with Write: puts answers into the overlay and the ledger, and settles doubts. It owns both.
//   - waits, with surveys: callers that wait, and the lists that end their waits. Under the writer lock.
//   - subscriptions, with Cursor, Drainer and echoFilter: deliver the log. The list of cursors is under the writer
//     lock. A cursor has a lock for its position. drainGoroutines runs drainers, under a lock of its own.
//   - reader, Snapshot, View, indexer, currentSelector: reads, indexes and selectors, without a lock of their own.
//     bucketLists: the records of buckets that are read often, under bucketLists.mu.
//   - inspect takes snapshots of the parts; explain and metrics turn them into causes and metrics.
//   - Cache, with Handle: makes the stores of one cluster and runs their watches. It uses stores, and no part of a
//     store uses it. planner: what identifies the store of a request. catalog: the stores by key, their users and their
//     end, with an index that is read without a lock. declaredIndexes: the indexes of every store of a kind. holds
//     delays sources. saver saves stores, one claim for each file.
//
// Locks, in the order in which they may be taken: cacheEntry.scopes, catalog.mu, the writer lock (publisher.mu),
// Cursor.mu, ledger.mu, Drainer.mu. These are leaves, under which no other lock is taken: drainGoroutines.mu,
// statusBoard.mu, hotSet.mu, interner.mu, undecoded.mu, Cache.mu, planner.mu, declaredIndexes.mu, holds.mu, saver.mu,
// bucketLists.mu, and the locks of package internal/pack. No lock is held while user code runs: filters, index
// functions, Wake, Consume, OnMutation, decoders and handlers of the logger.
package store
