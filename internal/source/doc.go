// Package source turns list and watch of one Kubernetes resource into an ordered, repaired stream of changes.
//
// A [Source] fills a [Sink] per scope (one namespace, or all) and goes on until its context ends, whatever the
// connection goes through: expired versions, cut bodies, silent or endless streams, refusals, lagging replicas,
// restored backups.
//
//	src, err := source.New(source.Config{
//		REST:     restConfig,
//		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
//	}, func(namespace string) source.Sink { return store.Sink(namespace) })
//	if err != nil { … }
//	err = src.Run(ctx) // until ctx is done
//
// # The way of the bytes
//
// A request is one [http] body, read and scanned by one goroutine (stream.go, the decoders decode_*.go), which passes
// batches of scanned objects to the goroutine of the scope (scope.go); that one calls the sink. An object is never
// decoded: [Scan] finds the members of its metadata on the way through its bytes, and validates the rest.
//
// Config.Metadata asks for the metadata of objects alone (metadata.go). A server that does not know how is cut short
// here, so that nobody sees more.
//
// # Slots
//
// Config.Shard, or a [Sharding] that several sources share, restricts a source to the objects of some slots (package
// shard), which change while it runs (slots.go). The server is asked for these alone (selecting.go); whatever it makes
// of that, the same hash decides here before an object goes any further, on lists, initial events, watches and surveys.
// So a server that ignores the selector costs bytes, and one that refuses it a request now and then; Counters tell how
// much comes and how much of it is filtered away.
//
//	h := source.NewSharding(shard.Layout{})
//	src, err := source.New(source.Config{…, Sharding: h}, s.Sink)
//	err = h.Set(h.Layout().Set(0, 1, 2, 3)) // at any time
//	err = h.Wait(ctx)                       // until every source that runs has followed
//
// What leaves is forgotten by the Sink at once ([Sharded]), as having left and not as deleted. What comes is listed
// alone, by a consistent list, so that it is not older than what its former holder wrote, and then one watch of all
// that is held goes on from the version that it had. What stays is not listed again; its events wait for the list of
// what comes, which lasts as long as that. A change in the middle of a list begins the list anew, so that several
// quick ones cost one. Where versions have no order a gain costs a list of all.
//
// A source that holds no slot asks for nothing, and says ReasonNoSlots. It is synced, for there is nothing to be
// listed: a replica without a slot is ready. Before the first Sharding.Set nobody knows what it will hold: it is not
// synced. The initial objects of a Sink from disk are of an earlier share: all that is held is listed.
//
// # Repair
//
// Each attempt (list.go, watchlist.go, watch.go) ends with an error or an end of stream, and repair.go alone decides
// what comes next: resume the watch, list again, wait, take a new connection. probe.go asks for the server's version
// when a watch is silent or versions go down, or fails again and again at one version. survey.go asks what there is,
// beside the watch, for a sink that wants to compare.
//
// Nothing is asked for ever in the same way: two lists at the version seen that fail, whatever for, lead to a
// consistent one, and a watch that cannot go on from its version leads to a list. What is no object among objects is
// quarantined; the others go on.
//
// # Invariants
//
//   - The versions of one object, of lists and of bookmarks never go down, unless a Commit with Epoch comes in between.
//     What leaves with its slot and comes back is not older than it was.
//   - A Sink is given nothing of a slot that it does not hold, and nothing from before the list with which a slot came,
//     but for deletions.
//   - At most one watch and one list are open per scope. Retries are jittered, bounded by the back-off and by the
//     [Limiter].
//   - A list that is incomplete, failed or implausible is aborted: it deletes nothing.
//   - Every fault that is repaired is a typed [Status] with the server's message; recovery clears it.
//   - When Run returns, no goroutine, timer or connection of the source is left.
package source
