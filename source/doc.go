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
//   - At most one watch and one list are open per scope. Retries are jittered, bounded by the back-off and by the
//     [Limiter].
//   - A list that is incomplete, failed or implausible is aborted: it deletes nothing.
//   - Every fault that is repaired is a typed [Status] with the server's message; recovery clears it.
//   - When Run returns, no goroutine, timer or connection of the source is left.
package source
