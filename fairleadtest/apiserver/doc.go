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
// With Options.CRDs the server serves CustomResourceDefinitions: all versions, with conversion None, schema, defaults,
// pruning, CEL rules, and the subresources status and scale. Package crd makes that option. With Options.Strict,
// namespaces must exist, and built-in kinds have their defaults and most important rules. Options.OnChange reports each
// write.
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
// # What differs from a real server
//
// The server has no controllers: no objects are garbage collected, scheduled or run. A deleted namespace and its
// objects stay until a client removes the finalizer from its spec. Resource.Validate is the only admission. There is no
// conversion except between the versions of a definition: any other group, version and resource is a separate store.
// Put and Preload do not check the objects.
//
// A definition of Options.CRDs is served at once. Its names are accepted even if another definition has them, too.
// Printer columns and conversion webhooks have no effect. The objects of a deleted definition are deleted before the
// request is answered, those with finalizers as soon as the finalizers are gone.
//
// With Options.Strict, services get addresses and ports in order, and an address that a client chooses is not reserved.
// A claim has no finalizer for its protection and no default class, and a priority class of a pod has no effect. There
// are no service accounts, and DaemonSets have no template generation.
//
// The tests in directory e2e also send every kind of request to a real kube-apiserver and compare the answers: status
// code, reason, kind, details, causes, the object, warnings, and the events of watches. They do not compare messages.
// The only other differences are:
//
//   - Namespaces: without Strict, objects need no existing namespace. A namespace that is being deleted accepts no new
//     objects.
//   - Content of built-in kinds: without Strict, the server sets no defaults and does not check a spec. It checks
//     names, metadata, and the data of ConfigMaps, Secrets and Leases. With Strict it sets defaults, and checks only
//     the rules that clients break most often.
//   - Subresources: the server has status, the finalize of namespaces, the token of service accounts, the binding of
//     pods, and the scale of definitions and, with Strict, of workloads. Tests add others with Respond.
//   - Tables and YAML: the server returns neither. Table returns a table to a client that did not request one.
//   - Order at version 0: a watch that begins with any state sends the objects in descending order of their names. A
//     real server guarantees no order.
//   - Owner references: an error names the field as in the version of Kubernetes that this module is built with, which
//     may be newer than the server.
//   - Owners across versions: a write through another version of a custom resource keeps the managedFields of the first
//     version. A real server drops them until the next apply.
package apiserver
