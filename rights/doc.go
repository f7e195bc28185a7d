// Package rights declares what a program asks of the API server, and generates RBAC rules from the declarations. A
// [Right] names a kind and the verbs that the program uses on it. The role of a program thus follows from its code and
// is not written by hand.
//
// A runtime knows the rights that its sources, controllers, elections and groups need: [fairlead.Runtime.Rights]. A
// controller declares the further rights of its reconciler with reconcile.Needs:
//
//	reconcile.New[v1.Gateway](rt, "gateways", r,
//		reconcile.Owns[corev1.ConfigMap](),
//		reconcile.Needs(rights.Of(corev1.SchemeGroupVersion.WithKind("ConfigMap"), "create", "patch")))
//
// Code outside a controller declares rights with fairlead.Runtime.Need. [Rules] returns the rules of a role.
// [Manifests] returns all objects to apply to a cluster for a service account.
//
// # The verbs of a client
//
// The calls of a client need these verbs:
//
//   - Get and List need get and list, where the cache cannot answer them.
//   - A watched kind needs list and watch.
//   - Create needs create.
//   - Update needs update.
//   - Patch, client.Modify and client.ModifyStatus need patch.
//   - Delete needs delete.
//   - Apply needs patch, and also create if the object may not exist yet.
//   - A write whose response was lost also needs get, to look up the object.
//
// Writes of the status need rights on the subresource status.
//
// # Guarantees
//
//   - Equal rights produce equal output, byte for byte, in whatever order they were declared.
//   - No rule allows more than the rights ask for, with one exception. RBAC cannot restrict create to names, so a right
//     to create an object of one name becomes a right to create any.
//   - The package sends no requests and keeps no state. All functions are safe for concurrent use.
//
// [fairlead.Runtime.Rights]: https://pkg.go.dev/github.com/fairlead-io/fairlead#Host.Rights
package rights
