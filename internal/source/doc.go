// Package source turns list and watch of one Kubernetes resource into an ordered, repaired stream of changes.
//
// A [Source] fills one [Sink] per scope (one namespace, or all) until its context ends. It recovers from expired
// versions, truncated bodies, silent or endless streams, refusals, lagging replicas and restored backups.
//
//	src, err := source.New(source.Config{
//		REST:     restConfig,
//		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
//	}, func(namespace string) source.Sink { return store.Sink(namespace) })
//	if err != nil { … }
//	err = src.Run(ctx) // until ctx is done
//
// # Parts
//
// One goroutine runs each scope. It owns the parts without a lock and makes all calls to the Sink. Each request has a
// second goroutine, which reads the body. No part reads the fields of another one.
//
//	part         state                                                           lock
//	scope        the loop: which part runs next; makes the parts                 mu: wanted selectors, endCycle
//	agenda       whether and how to list before the next watch, history of       none
//	             faults
//	progress     none of its own; alone writes condition, tells the Sink         none
//	condition    published Status                                                mu
//	position     version seen, recent changes, slots listed ahead of the watch   none
//	kindCheck    kind of the objects                                             none
//	slotFilter   held slots, slots to list; drops objects of other slots         mu: held, completed
//	namespaces   namespaces of the objects seen                                  none
//	resumption   version that confirms the content of an earlier run             none
//	lister       accuracy of the server's item counts; accepts lists             none
//	  listing      an open replacement; stager makes it, pager (GET) or          none
//	               initialEvents (watch) fill it
//	watcher      unreadable frames of the watch; passes changes to the Sink      none
//	prober       server version that a silent watch must reach                   none
//	Surveyor     running requests of the Sink beside the watch                   mu
//	requester    connection of the last request; with shardSelector, rejections  atomic values
//	stream       batch being consumed; its bodyReader: buffers, time of a byte   channels, atomic values
//	Sharding     slots of several sources, and their progress                    mu
//
// Locks are taken in the order Source.changing, Sharding.mu, Source.mu, then one lock of a scope. No lock is held
// during a call to the Sink or a request, except that SetNamespaces holds changing until the removed scopes have ended.
//
// Lister and watcher report to progress (interfaces listProgress and watchProgress), not for each event. All parts of a
// scope add to one Counters, which condition publishes after each batch. repair.go chooses the remedy of a fault, as a
// function of the fault and its history. The decoders (decode_*.go) never decode an object: [Scan] finds the members of
// its metadata and validates the rest.
//
// Config.Metadata requests only the metadata of objects (metadata.go). If the server sends complete objects, the source
// removes the rest before it calls the Sink.
//
// # Slots
//
// Config.Shard, or a [Sharding] that several sources share, restricts a source to the objects of some slots (package
// shard). The slots may change while the source runs (slots.go). The source requests only these objects (selecting.go).
// It also filters every list, initial event, watch and survey by the same hash. A server that ignores the selector
// therefore costs bytes, and one that rejects it costs a request now and then. Counters report the received and the
// filtered objects and bytes.
//
//	h := source.NewSharding(shard.Layout{})
//	src, err := source.New(source.Config{…, Sharding: h}, s.Sink)
//	err = h.Set(h.Layout().Set(0, 1, 2, 3)) // at any time
//	err = h.Wait(ctx)                       // until every running source has followed
//
// The Sink drops the objects of lost slots at once ([Sharded]) and does not report them as deleted. The source lists
// gained slots alone, with a consistent list, so the result includes the writes of their former holder. Then one watch
// of all held slots continues from its previous version. Slots that stay are not listed again, but their events wait
// until that list is complete. A change during a list restarts the list, so several quick changes cost one list. If
// versions have no order, gaining slots lists everything.
//
// A source that holds no slot makes no requests and reports ReasonNoSlots. It is synced, so a replica without slots is
// ready. Before the first Sharding.Set the slots are unknown and the source is not synced. A sharded source never
// resumes from the content that a Sink loaded from disk, which belongs to an earlier set of slots. It lists all held
// slots.
//
// # Repair
//
// Each attempt of the loop ends with an error or an end of stream. repair.go alone chooses the next step: resume the
// watch, list again, wait, or open a new connection. The prober asks for the server's version when a watch is silent,
// when versions go down, or when watches keep failing at one version. A Surveyor lists the objects of the server beside
// the watch, for a Sink that compares.
//
// The source never repeats one failing request forever. Two failed lists at the version seen lead to a consistent list.
// A watch that cannot continue from its version leads to a list. An object that cannot be read is quarantined and does
// not affect the others.
//
// A check of a list returns one of the known errors. It is then counted, published and retried without further code:
//
//   - ProtocolError for an answer that is not a list, or that does not end (package internal/paging): back-off
//   - confirmation or ErrImplausible for a list that may be wrong (listing.doubt): a second, consistent list decides
//   - ErrStale for an old list, errTokenExpired for one that has to begin again
//
// An error of another type is reported as Disconnected, unless it has a case in repair.go. A Reason (status.go) is for
// errors that users must tell apart. The number of remaining objects in a page may be an estimate, and is absent with a
// selector. Two more loops read pages: the list of namespaces (namespaces.go), and a Surveyor (survey.go), whose
// failures are only logged, since the next survey repeats it. Package call has its own lists (call/list.go).
//
// # Invariants
//
//   - The versions of one object, of lists and of bookmarks never go down, except after a Commit with Epoch. An object
//     that leaves with its slot and returns is not older than before.
//   - A Sink receives no object of a slot that it does not hold. For a gained slot it receives no change older than the
//     list of the slot, except deletions.
//   - At most one watch and one list are open per scope. Retries are jittered and bounded by the back-off and the
//     limiter of the connection.
//   - A list that is incomplete, failed or implausible is aborted and deletes no object.
//   - Every fault under repair is a typed [Status] with the server's message. Recovery clears it.
//   - When Run returns, the source has no goroutine, timer or connection left.
package source
