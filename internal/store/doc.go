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
//	d := s.Drain(store.DrainOptions{Consume: func(events []store.Event) bool { ... }}) // snapshot, then live
//	err = d.Run(ctx)
//
// A [Drainer] follows the store for one consumer: it owns wake, drain and close. Who wants one event at a time asks
// the [Cursor] beneath it: Subscribe, Next, Close.
//
// A [Cache] makes the stores of one cluster on demand and shares them.
//
// # Decoded objects are read-only
//
// An object is kept as the bytes that the server sent and decoded when somebody reads it. All readers of one version
// get the same pointer. Copy it (DeepCopy) before changing anything in it. Options.DetectMutation finds those who do
// not.
//
// # What is kept of an object
//
// All of it but managedFields, unless [Content] says something else:
//
//	store.New(store.Options{…, Content: store.Content{Drop: []string{"data"}}}) // secrets without what is secret
//
// What is not kept is cut out of the bytes on the way in (package internal/cut), from the watch and from the answers to
// own writes alike: it is not in memory, not in a saved file, not in what is quarantined, and in no log if the source
// has NoExcerpts, as those of a [Cache] have. Requests to a Cache share a store where both are handed out the same.
//
// # Slots
//
// A store that is filled with the objects of some slots (Options.Shard, source.Config.Shard) gives those that leave
// with a slot as [Left], never as Deleted, and those that come with one as Added, with Event.Initial. To leave is an
// end for the subscriber: who takes late is given one LEFT, and what comes back is Added anew, also if it has not
// changed, for others may have worked on it. What was deleted here after it had come back is Deleted. Own writes are
// laid over the store if their object is in a slot that is held, which can be told without asking; those of others are
// not, and their late answers bring nothing back. Store.Covered says whether a read of a namespace can be answered. Of
// a [Cache], two requests share a store if they share the source.Sharding, whatever it holds. Such a store is not
// saved.
//
// # Invariants
//
//   - W1: per key, the versions that a subscriber is given never go down, unless an EPOCH came in between.
//   - W2: per key and uid: ADDED, MODIFIED*, then DELETED, or LEFT and perhaps all of it once more. A changed uid is
//     DELETED, then ADDED. One exception: an object that only the overlay knew, and that a list omits, is DELETED
//     (inferred) although it never was ADDED.
//   - W3: the prior state of an event is what that subscriber was given last.
//   - W4: at rest, server, store, and the fold of each unfiltered subscriber's events are equal; indexes too.
//   - W5: when an event is given, reads are at least as new as it.
//   - W6: SYNCED comes once per subscriber, in the Take after the one that ended the initial objects.
//   - W10: a subscriber that does not take its events costs memory per key, not per event.
//   - W11: a replacement that is not committed changes nothing.
//   - C1: after the answer to a write was put, every read sees that write or something newer.
//   - C2: after a delete was answered, no read sees that incarnation.
//   - C3: a foreign change is never taken for the echo of an own write.
//   - No wait for a version waits for a bookmark: what the watch does not settle soon a list of the metadata does,
//     one for all who wait.
//
// # How it works
//
// There is one immutable state at a time, made of persistent tries (package internal/trie). A write makes the next
// one, which shares nearly everything, and publishes it with one pointer. So reads take no lock, a snapshot is a
// pointer, and a list of 100,000 objects becomes visible at once. What the server has told is the base; with own
// writes laid over it, it is the merged state, which is read. Without own writes they are the same pointer. Writers,
// of which there is one per scope, take turns.
//
// Reading order. A file uses what comes before it, but for a few cases: mostly the types of fields of Store.
//
//   - The words: key, version, identity, shape, record, event, errors.
//   - Records, without a store: intern (what they share), content and kept (what of objects they hold, with package
//     internal/cut), fastjson, codec (how they are made and kept small, with package internal/pack), decode, hot,
//     later (how they are read).
//   - The parts of a store that do not know it: log, coalesce, field, selector, options, status, index, facet, state,
//     ledger, tombstone.
//   - The store and what it covers: store, scope, overlay.
//   - How it is followed: cursor, echo, resync, publish, drain.
//   - How it is waited for: wait, survey, conditions.
//   - How it is filled: by own writes (write, answer, settle), by a source (sink, replacement), with slots that come
//     and go (slots).
//   - How it is read: index_build, snapshot, view, metrics.
//   - The stores of one cluster, shared and saved: persist (with package internal/savefile), cachekey, cache, acquire,
//     address, autosave. They use the store, and nothing of it uses them. They are in this package because [Handle] is
//     a Store and [Cache] makes it: a package of their own would have to import this one, which then could not offer
//     their names.
//
// Locks, in the order in which they may be taken: cacheEntry.scopes, Cache.mu, Store.mu, Cursor.mu, ledger.mu. Each
// of these is a leaf, under which no other one is taken: Drainer.mu, statusBoard.mu, hotSet.mu, interner.mu, those of
// package internal/pack. No lock is held while code of the user runs: filters, index functions, Wake, Consume,
// OnMutation, decoders and handlers of the logger.
package store
