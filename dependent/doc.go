// Package dependent keeps the children of objects in the state that a graph declares. For each object of a kind, the
// primary, the graph declares ConfigMaps, Deployments and other objects, their order and their conditions. It can also
// declare resources outside of the cluster.
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
// # Nodes
//
// A node is a function that returns the desired child, or the desired children ([AddSet]). The controller applies each
// child by server-side apply (KEP-555) with the field manager of the client. That manager then owns exactly the desired
// fields. A field that is no longer desired is removed, and the fields of other managers stay. So the function must
// build the child from scratch. Other writes of the program to the same objects must use another field owner.
//
// [After] orders creation, and in reverse, deletion. A node waits until the nodes that it comes after are [Ready]. [If]
// selects the primaries for which a node is wanted. Where it is not, its children are deleted, and so are those of the
// nodes that come after it. [AddExternal] adds a node for a resource outside of the API server.
//
// [Optional] lets the kind of a node be absent from the API server. The node is left out until the kind is served.
//
// # Requests
//
// If all children are as desired, the controller sends no request, since it compares them in the cache. The response to
// an apply lists the owned fields, with the values that the API server has stored (defaults, admission, quantities).
// The controller remembers a hash of them and compares it with that of the watched object. So an owned field that
// drifts costs one write, and changes of other fields cost none. After a restart, or a move to another replica, nothing
// is remembered. Then each child is applied once, and the API server changes nothing if the child is as desired.
//
// Before it creates a child, the controller reads it from the API server. An object of that name may lack the marks of
// a child of this primary. Then the controller reports [ErrForeign] and does not write it, unless [Adopt] allows that.
// Each later write requires the uid of the object that was compared.
//
// If another client keeps changing owned fields, the controller reports [ErrContended] after some rounds. It then
// restores the child with back-off, up to five minutes.
//
// The key of a list element cannot be restored this way. For example, another client changes the number of the only
// port of a Service. Then an apply adds the desired port to the changed one, which the API server may refuse
// ([ErrImmutable]; [Recreate] replaces the child).
//
// # Inputs of a node
//
// The function of a node may read any object. [Node.Child] returns the current children of earlier nodes, and
// client.Get returns other watched objects. To keep a value that is generated once, such as a password, first read the
// child itself:
//
//	old, err := client.Get[corev1.Secret](ctx, c, key) // apierrors.IsNotFound: make one
//
// When another object changes, the primary must be reconciled. Use options of the controller for this (reconcile.Owns,
// reconcile.Watches). For objects that the primary names, use reconcile.Follow with the controller that
// [Graph.Controller] returns.
//
// With [When], such an object decides whether a node is wanted. To make a node wait but keep an existing child, return
// an error from its function. Alternatively, use [After] with a node whose [Ready] depends on that object.
//
// # Execution
//
// Each primary with pending work has one fiber (package flow), named after the controller. The fiber examines all nodes
// and writes several children at a time. It then writes the status and parks until a change or a time. While it waits
// for children, it is a record of some hundred bytes, without a goroutine, polling or requests. Only resources outside
// of the cluster are read again: after seconds while they are not ready, later after minutes. Its position is not
// stored: after a restart it examines the current state again. /debug/flows and "fairlead flows" show the fiber. It
// ends when there is nothing left to do, and the next change starts another one.
//
// If a node fails, the other nodes proceed. The fiber then ends with the error, and the controller retries after its
// back-off. The failure shows in reconcile.Controller.Failures, in metrics and in Events. The next round without an
// error ends it, even if the fiber then waits. The attempts and the back-off are reset.
//
// # Deletion
//
// The controller has a finalizer if the order of deletion matters (After, Deleted), or if the garbage collector cannot
// delete the children ([Elsewhere], [AddExternal]). It then deletes the children in reverse order, each after those
// that come after it, and finally removes the finalizer. Otherwise there is no finalizer, and the garbage collector
// deletes the children.
//
// If a newer version of an operator drops a node, the controller still deletes the children of that node. It finds them
// by their owner and their mark ([AnnotationNode]), as long as another node watches their kind.
//
// # Invariants
//
// D1: a round without changes sends no request.
//
// D2: the controller writes no object without the marks of the primary, except as Adopt allows.
//
// D3: a child is created after those before it are ready, and deleted after those after it are gone.
//
// D4: after an error of a function or a request, no child of its node is deleted.
//
// D5: at rest the children are exactly the desired ones, with all desired fields.
//
// # Parts
//
// The declaration lies in graph.go, option.go, node.go and external.go. The types of one round are the following. They
// belong to the fiber of the primary and need no lock.
//
//   - round (round.go): asks the nodes in their order, and connects the other parts. It decides about surplus children.
//   - state, want (state.go, want.go): what a round knows about the children of one node, and one desired child.
//   - marks (mark.go): the marks of the children of one primary, and whether an object may be taken.
//   - comparer (compare.go): the decision about one child. It reads the cache.
//   - externals (outside.go): the decision about one external resource.
//   - attempts (attempts.go): the operations of the round with their results.
//   - op, performer (op.go): one operation, and its requests. Several run at a time, while no result is recorded.
//
// memory (memory.go, learn.go, owned.go) remembers the children of all primaries between rounds. Its lock memory.mu
// guards the map; the entries of a primary belong to its fiber. packet (controller.go) is the fiber, and packet.mu
// guards the changes that it has not seen. No lock is acquired while another one is held.
//
// The status, the report and the causes (conclude.go, report.go, why.go) are functions of the states of a round.
package dependent
