// Package rights says what a program asks of the API server, and makes RBAC of it, so that a role follows from what is
// declared and is not written by hand.
//
// A runtime knows what its sources, controllers, elections and groups ask: [fairlead.Runtime.Rights]. What the code
// of a reconciler asks besides is said where the controller is declared:
//
//	reconcile.New[v1.Gateway](rt, "gateways", r,
//		reconcile.Owns[corev1.ConfigMap](),
//		reconcile.Needs(rights.Of(corev1.SchemeGroupVersion.WithKind("ConfigMap"), "create", "patch")))
//
// and what no controller asks with fairlead.Runtime.Need. [Rules] makes the rules of a role of them, and [Manifests]
// everything that is applied to a cluster for a service account.
//
// # The verbs of a client
//
// Get and List that the cache cannot answer are get and list; what is watched is list and watch. Create is create,
// Update is update, Patch, client.Modify and client.ModifyStatus are patch, Delete is delete. Apply is patch, and
// create besides where the object may not exist yet. A write whose answer was lost is looked for with get. Writes of
// the status are rights on the subresource status.
//
// # What holds
//
//   - Equal rights make equal output, byte for byte, in whatever order they were said.
//   - No rule allows what no right asks, but one: create cannot be restricted to names in RBAC, so that a right to
//     create an object of one name is that to create any.
//   - The package sends nothing and keeps nothing; all of it is safe for concurrent use.
//
// [fairlead.Runtime.Rights]: https://pkg.go.dev/github.com/fairlead-io/fairlead#Cluster.Rights
package rights
