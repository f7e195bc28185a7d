// Package controllers has stand-ins for the controllers of Kubernetes, for a model API server in a bubble of
// testing/synctest. A cluster of them starts in microseconds and costs a few requests for each object.
//
//	server, err := apiserver.New(apiserver.Options{Pipe: true, OnChange: func(c apiserver.Change) { all.OnChange(c) }})
//	all := controllers.New(controllers.Options{Config: server.Config(), Delay: delay})
//	go all.Run(ctx)
//
// # How it works
//
// The stand-ins open no watches: OnChange gives them each write of the server. One goroutine keeps the present state,
// and a queue of keys, such as "replicaset default/web". A change makes the keys due that it concerns, after a delay. A
// key that is due leads to at most one write: its controller decides with a plain function of the state. The write is a
// change, which makes the key due again, until there is nothing left to do. So each write has a moment of its own, and
// any two controllers may act between two writes of a third. Keys that are due at the same time come in the order of
// their texts.
//
// Writes are requests of a client, with the user agents of the real programs. The server validates them, and faults may
// strike them. A conflict or an error is tried again after 5ms, doubled each time, up to 1000s. A 404, and the refusal
// to create in a namespace that is being deleted, wait for a change instead. Nothing is polled.
//
// # What is simulated
//
//   - Garbage collection: background, foreground and orphan deletion, several owners, owners that do not exist or are
//     in another namespace, owners of kinds that are not served, circles.
//   - Namespaces: the contents are deleted, pods first; the conditions tell what remains. Each namespace has the
//     account default and the ConfigMap kube-root-ca.crt.
//   - Pods: scheduled to one node, Running, Ready, ended on deletion, as package cluster/kubelet says.
//   - ReplicaSets, Deployments (RollingUpdate, Recreate, pause, proportional scaling, history, progress deadline),
//     StatefulSets (ordered and parallel, partition, claims and their retention), DaemonSets, Jobs.
//   - Claims: bound to a new volume of their class or the default class; protected while a pod uses them.
//   - EndpointSlices: one for each Service with a selector.
//
// # What differs from the real controllers
//
//   - A real controller may write several objects at the same time, or act on a stale cache. A stand-in writes one
//     after the other, and always sees the last write.
//   - No Events are written.
//   - A status is written when nothing else is left to do for its object. A real controller may write it in between.
//   - The contents of a namespace are deleted one by one, not by deletecollection.
//   - Template hashes and revision names are computed in another way.
//   - StatefulSets and DaemonSets have no ControllerRevisions. The templates of old revisions are kept in memory.
//   - Jobs: no policies for pod failure and success; no pods if there is a limit of failures per index; the back-off
//     counts only pods that exist.
//   - Endpoints objects, which EndpointSlices replace, are not kept, and only IPv4 addresses are.
//   - CronJobs, HorizontalPodAutoscalers, disruption budgets, quotas, token Secrets and certificates are not
//     simulated.
//   - Pods are bound by a patch of their node name, if the server has no subresource binding. That raises their
//     generation.
//
// The scripts in controllerstest run on the stand-ins and, in directory e2e, on kube-controller-manager. After each
// step both have the states in testdata.
//
// # Files
//
//   - controllers.go: the queue and its goroutine; request.go: what it sends.
//   - world.go: the present state; concerned.go: the keys that a change concerns. Only the goroutine uses them.
//   - The other files have one controller each: functions from the state to the next write, without a state of their
//     own. Only StatefulSets keep their templates in world.
//   - objects.go: what a new cluster has.
package controllers
