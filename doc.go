// Package fairlead is the front door of Fairlead, the asynchronous runtime for Kubernetes operators.
//
// # A first program
//
// A program declares what it wants to see and what it does about it, then runs:
//
//	var CertainConfigMaps = observe.Selector("certain-configmaps")
//
//	cfg, err := fairlead.Config("") // of KUBECONFIG, of the pod, or of ~/.kube/config
//	…
//	rt := fairlead.New(cfg)
//	observe.Source[corev1.ConfigMap](rt, CertainConfigMaps, cache.Namespaces("team-a", "team-b"), cache.Labels("app=web"))
//	observe.On(rt, CertainConfigMaps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
//		slog.InfoContext(ctx, "configmap", "type", e.Type, "key", e.Key, "old", e.Prior(), "new", e.Object())
//		return nil
//	})
//	return rt.Run(ctx)
//
// Source and observer may live in different packages and are declared in any order: the selector pairs them. However
// many observers there are, there is one watch; a source that nobody observes is never listed. Package observe says
// more: events and masks, sync and async delivery, failures, derived sources, known state.
//
// # Reading and writing
//
// Reads and writes go through [Host.Client]: what was written is seen by the next read, whatever the watch does.
//
//	var gw v1.Gateway
//	err := rt.Client().Get(ctx, key, &gw)                           // a copy of your own; from memory, if gateways are observed
//	err = client.ModifyStatus(ctx, rt.Client(), &gw, withReady(ip)) // conflicts are dealt with; gw is what the server answered
//	now, err := client.Get[v1.Gateway](ctx, rt.Client(), key)       // sees it; shared with all readers, so READ-ONLY
//
// # More than observers
//
// A reconciler is declared on the runtime like an observer. It is given a copy of each object, its own, whenever
// something that concerns it may have changed:
//
//	reconcile.New[v1.Gateway](rt, "gateways", &Gateways{rt.Client()}, reconcile.Owns[corev1.Service]())
//
//	func (r *Gateways) Reconcile(ctx context.Context, gw *v1.Gateway) (reconcile.Result, error) {
//		return reconcile.Done, client.ModifyStatus(ctx, r.c, gw, withReady)
//	}
//
// [Host.Add] runs whatever else belongs to the program, such as a server or a relay, and [Runtime.Flows] looks after
// an engine of package flow. [Runtime.Join] adds another cluster, on which the same can be declared.
//
// # Running
//
// [Runtime.Run] checks the declarations of sources and observers and reports all mistakes together, each with file and
// line, before any request is made; a controller reports its own when it is started. It starts in this order, and stops
// in the reverse one:
//
//	pages → leadership → caches → observers → controllers and what else was added
//
// What was added with [Host.AddAlways], such as an HTTP API that every replica serves, runs with the caches before
// and beside leadership.
//
// It returns when its context ends, a signal comes ([WithSignals]), leadership is lost ([WithLeaderElection]) or
// something fails, after everything has stopped; whoever does not stop in time is named in the error. At the end no new
// event is taken, observers that are running may finish for a while ([WithDrain]), and writes work until the last of
// them has returned.
//
// A source or a controller that cannot be started makes Run fail, and what was started is stopped; with [WithDegraded]
// the others run and it is tried again.
//
// # In production
//
// [WithListen] serves health, readiness, metrics and debug pages, see [Runtime.Handler]. Health is staleness below a
// bound ([WithStaleness]), not "synced once": a program whose watch has died silently is not healthy, be it of
// observers or of reconcilers. /debug/observers tells who observes what, where it is declared, and how it is doing;
// /debug/controllers which objects fail, with the error and the next try. [WithLogger] is for all that the runtime
// hosts.
//
//	rt := fairlead.New(cfg, fairlead.WithLogger(log), fairlead.WithSignals(), fairlead.WithListen(":9090"),
//		fairlead.WithLeaderElection("operators", "gateways"))
//
// What all that was declared asks of the API server is known: [Host.Rights], from which package rights makes a role,
// and package clustertest a test that runs the program with that role and no other right.
//
// Tests use fairleadtest/apiserver, an API server in the process that shows every fault on demand.
//
// The layers can be used alone too. The way of one change is also the order in which to read them: source, store,
// observe or reconcile, flow, client, call.
package fairlead
