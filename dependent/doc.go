// Package dependent keeps the children of objects as a graph declares them: for each object of a kind, its primary,
// some ConfigMaps, Deployments and so on, in an order, under conditions, and things outside of the cluster.
//
//	web := dependent.For[v1.WebPage]()
//	html := dependent.Add(web, "html", desiredConfigMap) // func(ctx, *v1.WebPage) (*corev1.ConfigMap, error)
//	server := dependent.Add(web, "server", desiredDeployment, dependent.After(html),
//		dependent.Ready(dependent.IsReady[appsv1.Deployment]))
//	dependent.Add(web, "service", desiredService, dependent.After(server),
//		dependent.If(exposed)) // func(*v1.WebPage) bool
//	web.Status(func(page *v1.WebPage, r *dependent.Report) { r.Into(&page.Status.Conditions) })
//	web.Controller(rt, "webpages")
//
// # What a node is
//
// A node says by a function what its child is to be, or its children ([AddSet]). It is applied by server-side apply
// (KEP-555) with the field manager of the client, which then owns exactly the fields that are desired: one that is
// desired no more is removed, and those of others stay. So build what is desired anew each time, and use another field
// owner for what else the program applies to the same objects.
//
// [After] orders creation, and in reverse deletion; a node waits until what it comes after is [Ready]. [If] says for
// which primaries a node is wanted; where it is not, its children are deleted, and those of the nodes that come after
// it. [AddExternal] is a node for something that is no object of the API server.
//
// # What is sent
//
// Nothing, if nothing is to be done: whether a child is as it should be is found in the cache. The answer to an apply
// says which fields are owned, and what the API server has made of them (defaults, admission, quantities); their sum is
// remembered, and compared with that of what the watch tells. So an owned field that drifts costs one write, and what
// others do beside it none. After a restart, or a move to another replica, nothing is remembered: each child is applied
// once, which the API server answers without a change where there is nothing to do.
//
// Before a child is created the API server is asked for it. An object of that name without the marks of a child of this
// primary is told ([ErrForeign]), and left as it is, unless [Adopt] takes it over. Each later write is bound to the
// incarnation that was looked at.
//
// Somebody who changes back what is owned is noticed after some rounds: then the child is put right with back-off, up
// to five minutes, and told as failed ([ErrContended]).
//
// The key of an element of a list cannot drift back in this way: where somebody has given the only port of a Service
// another number, both ports would be there, which the API server may refuse ([ErrImmutable]; [Recreate] replaces it).
//
// # What a child depends on
//
// The function of a node may look at anything: with [Node.Child] at what nodes before it have become, with client.Get
// at what else is watched. A value that is made once, such as a password, is kept by looking at the child itself first:
//
//	old, err := client.Get[corev1.Secret](ctx, c, key) // apierrors.IsNotFound: make one
//
// When something of another object changes, the primary has to be looked at: with the options of the controller
// (reconcile.Owns, reconcile.Watches), or with reconcile.Follow and the controller that [Graph.Controller] returns, for
// what this primary names. [When] decides by such an object whether a node is wanted; where it is only to wait, and to
// stay when it is there, say what is desired, and return an error or come [After] a node that is [Ready] by it.
//
// # How it runs
//
// As a flow: each primary that has something to do has one fiber (package flow), named after the controller, which
// looks at all nodes, does what is due with several children at a time, tells the status, and parks until something
// changes or a time comes. While children are not ready it is a record of some hundred bytes: no goroutine, no polling,
// no request. It looks at the world anew each time, so nothing of it is recorded, and after a restart it goes on by
// looking. /debug/flows and "fairlead flows" show it. When all is done it ends, and the next change begins another.
//
// A failure of one node leaves the others at work; then the fiber ends with the error, and the controller tries again
// after its back-off, with all that goes with it: reconcile.Controller.Failures, metrics, Events.
//
// # Deletion
//
// Where the order matters (After, Deleted), or the garbage collector cannot do it ([Elsewhere], [AddExternal]), the
// controller has a finalizer: children are deleted in reverse, each when those after it are gone, and then the primary
// may go. Otherwise there is none, and the garbage collector deletes what the primary owns.
//
// A node that an operator does not have any more, in a newer version, is not forgotten: its children are found by their
// owner and their mark ([AnnotationNode]) and deleted, as long as another node watches their kind.
//
// # Invariants
//
// D1: a round with nothing to do sends nothing.
//
// D2: nothing is written to an object that does not have the marks of the primary, except what Adopt allows.
//
// D3: a child is created after those before it were ready, and deleted after those after it were gone.
//
// D4: an error, of a function or a request, deletes nothing of its node.
//
// D5: at rest the children are those that are desired, with all that is desired.
//
// # Reading order
//
//   - the declaration: errors.go, graph.go, option.go, node.go, external.go;
//   - what a child is, and what is known of it: mark.go, want.go, owned.go, memory.go;
//   - one look at a primary, and what follows from it: round.go, op.go, conclude.go, report.go, ready.go;
//   - the fiber that does it: controller.go.
package dependent
