// Package apiserver is a Kubernetes API server for tests, in the same process, with every fault that a real one, its
// etcd, a proxy or the network can show. It stores objects with their whole history and answers get, list, watch and
// writes as the real server does, in JSON and protobuf, over TCP or over in-memory connections.
//
//	s, err := apiserver.New(apiserver.Options{})
//	defer s.Close()
//	client, err := kubernetes.NewForConfig(s.Config())
//
// Faults are rules: which requests, and what happens to them.
//
//	// the second watch of pods is cut after 100 bytes, in the middle of a frame
//	s.On(apiserver.Match{Verb: "watch", Resource: "pods", Nth: 2}, apiserver.Cut(100))
//	// the third page of every list is refused with 410
//	s.On(apiserver.Match{Verb: "list", Page: 3}, apiserver.ExpireContinue(true))
//	// a status update is stored, and its answer is lost
//	s.On(apiserver.Match{Verb: "update", Subresource: "status", Times: 1}, apiserver.DropAfter())
//	// every list is refused for a while
//	down := s.On(apiserver.Match{Verb: "list"}, apiserver.Answer(apiserver.Failure(503)))
//	…
//	down.Off()
//
// The state can be changed behind the clients' backs (Put, Remove, Delete, Poison), and so can history (Compact,
// Rollback). HoldEvents keeps watches behind the writes until it is released, HoldResponse keeps answers behind a Gate,
// Watches gives hold of open watches to end, cut or write into them. Down and Up take the server off the network and
// back.
//
// Tests wait with WaitFor, which looks at the log of requests, and need no sleeps:
//
//	err := s.WaitFor(ctx, func(l apiserver.Log) bool { return l.Open(apiserver.Match{Verb: "watch"}) == 1 })
//
// With Options.Pipe nothing leaves the process and all waiting is on channels and timers, so that the server, its
// clients and their back-off run on the fake clock of testing/synctest.
//
// # What holds
//
// Every write is one revision of one global counter; a resource version is that number in decimal, unless
// Options.OpaqueVersions hides it. A watch at version N sends exactly the writes after N, each once and in order. A
// list is the state at one revision, over all its pages. Nothing is decided by the wall clock but timeoutSeconds,
// bookmarks and the delays that a fault asks for; uids and generated names come from counters. No goroutine is left
// after Close.
//
// # What differs from a real server
//
// There are no controllers: nothing is garbage collected, scheduled or run, and a namespace that is deleted stays, with
// its objects, until somebody takes the finalizer out of its spec. There is no admission besides Resource.Validate, and
// no conversion: each group, version and resource is a store of its own. What Put and Preload store is not checked.
//
// The tests in directory e2e send every kind of request to a real kube-apiserver too, and compare the answers: status
// code, reason, kind, details, causes, the object, warnings, and the events of watches. They do not compare texts for
// people. All else is the same but this:
//
//   - Namespaces: none need exist, so that tests need not make any; one that is there and is being deleted takes
//     nothing new.
//   - Content of built-in kinds: no defaults are set, and a spec is not checked, since that would be the half of
//     Kubernetes: what a test needs it gives. Names, metadata, and the data of ConfigMaps, Secrets and Leases are
//     checked.
//   - Subresources: there are none but status, the finalize of namespaces and the token of service accounts; for others
//     there is Respond.
//   - Tables and YAML: nothing is answered in these forms, which are for people; Table answers with a table nobody
//     asked for.
//   - Order at version 0: a watch that begins with any state sends it last name first, since the real server promises
//     no order there.
//   - Owner references: a refusal names the field as the version of Kubernetes does that this module is built with,
//     which may be newer than the server.
package apiserver
