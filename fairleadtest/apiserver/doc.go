// Package apiserver is an in-process Kubernetes API server for tests. It can inject the faults of a real server, its
// etcd, a proxy and the network. It stores objects with their whole history. It answers get, list, watch and writes
// like the real server, in JSON and protobuf, over TCP or in-memory connections.
//
//	s, err := apiserver.New(apiserver.Options{})
//	defer s.Close()
//	client, err := kubernetes.NewForConfig(s.Config())
//
// A fault is injected by a rule, which selects requests and states their treatment:
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
// Put, Remove, Delete and Poison change the state without requests; Compact and Rollback change the history. HoldEvents
// delays watches until it is released, and HoldResponse delays answers until a Gate opens. Watches returns open
// watches, which a test can end, cut or write to. Down and Up disconnect the server from the network and reconnect it.
//
// Tests wait with WaitFor, which checks the request log, and need no sleeps:
//
//	err := s.WaitFor(ctx, func(l apiserver.Log) bool { return l.Open(apiserver.Match{Verb: "watch"}) == 1 })
//
// With Options.Pipe all traffic stays in the process, and all waiting is on channels and timers. The server, its
// clients and their back-off can then run on the fake clock of testing/synctest.
//
// # Guarantees
//
// Every write is one revision of a global counter. A resource version is that number in decimal, unless
// Options.OpaqueVersions hides it. A watch at version N sends exactly the writes after N, each once and in order. All
// pages of a list show the state at one revision. Only timeoutSeconds, bookmarks and the delays of faults depend on the
// clock; uids and generated names come from counters. After Close no goroutine is left.
//
// # Differences from a real server
//
// The server has no controllers: no objects are garbage collected, scheduled or run. A deleted namespace and its
// objects stay until a client removes the finalizer from its spec. Resource.Validate is the only admission. There is no
// conversion: each group, version and resource is a separate store. Put and Preload do not check the objects.
//
// The tests in directory e2e also send every kind of request to a real kube-apiserver and compare the answers: status
// code, reason, kind, details, causes, the object, warnings, and the events of watches. They do not compare messages.
// The only other differences are:
//
//   - Namespaces: objects may be created in a namespace that does not exist. A namespace under deletion refuses new
//     objects.
//   - Content of built-in kinds: no defaults are set and specs are not checked, which would require half of Kubernetes.
//     A test sets the fields that it needs. Names, metadata, and the data of ConfigMaps, Secrets and Leases are
//     checked.
//   - Subresources: only status, finalize of namespaces and token of service accounts are served. Use Respond for
//     others.
//   - Tables and YAML: these formats for people are not served. The fault Table sends a table without a request for it.
//   - Order at version 0: a watch that may start with any state sends the initial objects in descending order of names,
//     since the real server guarantees no order.
//   - Owner references: an error names the field like the Kubernetes version with which this module is built, which may
//     be newer than the server.
package apiserver
