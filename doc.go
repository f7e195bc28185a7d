// Package fairlead runs Kubernetes operators. A [Runtime] connects to one or more API servers. It watches and caches
// the objects that a program declares, and calls the program's observers and reconcilers. It starts and stops all parts
// in order.
//
// # A first program
//
// A program declares the objects that it watches and the functions that handle them, then runs:
//
//	var CertainConfigMaps = observe.Selector("certain-configmaps")
//
//	cfg, err := fairlead.Config("") // from KUBECONFIG, the pod's service account, or ~/.kube/config
//	…
//	rt := fairlead.New(cfg)
//	observe.Source[corev1.ConfigMap](rt, CertainConfigMaps,
//		cache.Namespaces("team-a", "team-b"), cache.Labels("app=web"))
//	observe.On(rt, CertainConfigMaps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
//		slog.InfoContext(ctx, "configmap", "type", e.Type, "key", e.Key, "old", e.Prior(), "new", e.Object())
//		return nil
//	})
//	return rt.Run(ctx)
//
// Sources and observers may live in different packages and may be declared in any order; the selector connects them.
// All observers of a selector share one watch. A source without observers is never listed. Package observe documents
// events and masks, sync and async delivery, failures, derived sources and known state.
//
// # Reading and writing
//
// Reads and writes go through [Host.Client]. A read after a write returns the written state, even if the watch has not
// delivered it yet.
//
//	var gw v1.Gateway
//	err := rt.Client().Get(ctx, key, &gw) // a private copy, read from memory if gateways are observed
//	err = client.ModifyStatus(ctx, rt.Client(), &gw, withReady(ip)) // retries conflicts; gw becomes the server's answer
//	now, err := client.Get[v1.Gateway](ctx, rt.Client(), key) // sees the write; the object is shared and READ-ONLY
//
// # More than observers
//
// A reconciler is declared on the runtime like an observer. The runtime passes it a private copy of an object whenever
// a change may concern that object:
//
//	reconcile.New[v1.Gateway](rt, "gateways", &Gateways{rt.Client()}, reconcile.Owns[corev1.Service]())
//
//	func (r *Gateways) Reconcile(ctx context.Context, gw *v1.Gateway) (reconcile.Result, error) {
//		return reconcile.Done, client.ModifyStatus(ctx, r.c, gw, withReady)
//	}
//
// [IndexField] declares an index, by which reconcilers, flows and hooks list objects.
//
// [Host.Add] runs other parts of the program, such as a server or a relay. [Runtime.Flows] manages an engine of package
// flow. [Runtime.Join] adds another cluster; the same declarations can be made on it.
//
// # Running
//
// [Runtime.Run] checks the declarations of sources and observers before it sends any request. It reports all mistakes
// together, each with file and line. A controller reports its own mistakes when it starts. Run starts the parts in this
// order and stops them in reverse:
//
//	pages → leadership → caches → observers → controllers and other additions
//
// Functions added with [Host.AddAlways], such as an HTTP API that every replica serves, do not depend on leadership.
// They run together with the caches from before the election.
//
// Run returns when its context ends, a signal arrives ([WithSignals]), leadership is lost ([WithLeaderElection]) or a
// part fails. It first stops all parts; the error names those that do not stop in time. During the stop, observers
// receive no new events, running observers may finish within a bound ([WithDrain]), and writes work until the last
// observer has returned.
//
// If a source or a controller cannot start, Run stops the parts that it started and fails. With [WithDegraded] the
// other parts run and the runtime retries.
//
// # In production
//
// [WithListen] serves health, readiness, metrics and debug pages; see [Runtime.Handler]. A program is healthy while its
// state is not older than a bound ([WithStaleness]). A program whose watch has died silently is therefore unhealthy,
// although it was synced once. /debug/observers lists each observer with its selector, declaration and progress.
// /debug/controllers lists the failing objects with the error and the time of the next attempt. [WithLogger] sets the
// logger of all parts that the runtime hosts.
//
//	rt := fairlead.New(cfg, fairlead.WithLogger(log), fairlead.WithSignals(), fairlead.WithListen(":9090"),
//		fairlead.WithLeaderElection("operators", "gateways"))
//
// [Host.Rights] returns the permissions that the declarations need. Package rights makes a role from them, and package
// clustertest tests that the program runs with that role alone.
//
// Tests use fairleadtest/apiserver, an in-process API server that injects faults on demand.
//
// # Parts
//
// Runtime only connects these parts. Each has its own lock or none.
//
//   - declared (declared.go): clusters, functions of AddAlways, controllers, explainers and mistakes; one mutex,
//     because the start of Run changes what a declaration means. Locked before roster.mu.
//   - [Host] (host.go): one cluster. It connects the next three parts and the registry of observers; constant.
//   - connection (connection.go): the clients and the cache of one cluster; constant after connect.
//   - roster (roster.go): checks, rights and controllers that were declared on one cluster; own mutex.
//   - registrations (roster.go): the metrics of one cluster; only newHost and Join use them.
//   - additions and tasks (tasks.go): the functions of Add and their goroutines; additions.mu before tasks.mu.
//   - engines (flows.go): the engine of fibers; own mutex.
//   - leadership (leadership.go): waits for the election and binds the work to it; atomic.
//   - sharing (shards.go): hands slots over around the work; constant.
//   - pages (pages.go): handlers, the index and the guard of /debug/; own mutex.
//   - health (health.go): judges the state that view returns; its mutex guards first observations and AddReady.
//   - question (why.go, whykind.go, whyobject.go, whycondition.go): one call of Why. It asks the parts that witnesses
//     names, and reads their snapshots; no lock.
//
// Each layer can also be used alone. A change passes through source, store, observe or reconcile, flow, client and
// call; this is also a good order in which to read them.
package fairlead
