// Package v1alpha1 holds the custom resources of group fairlead.io: an [Operation] is one long-running request on a
// resource of an API service, a [Webhook] is an HTTP endpoint that operations call.
//
//	op := &v1alpha1.Operation{
//		ObjectMeta: metav1.ObjectMeta{
//			Namespace: "team-a",
//			Name:      v1alpha1.OperationName("Application", id),
//		},
//		Spec: v1alpha1.OperationSpec{
//			OperationType: v1alpha1.OperationDelete,
//			ResourceType:  "Application",
//			ResourceID:    id,
//			WebhookIDs:    []string{"cleanup"},
//		},
//	}
//
// The schemas that an API server enforces are in [CRDs]. They carry the defaults, so an object that was read from a
// server has every default filled in; [Operation.Default] and [Webhook.Default] do the same for an object that was not.
//
// What the API server itself holds, whoever writes:
//
//   - no accepted request is replaced before it was picked up: spec changes only when the operation that it asks for
//     has ended, except that cancelRequested may become true at any time;
//   - an operation has one outcome: a terminal phase stays until status is about another operationID;
//   - an Operation is about one resource for its whole life;
//   - a request object never carries credentials in its headers;
//   - no two calls of one Operation share an idempotency key: the webhooks are named once each, operation ids have no
//     dot, and names of webhooks do not end like the suffixes of those keys.
//
// # Locks
//
// A related resource with lock is its operation's own, within the namespace, from the first call to the end: of two
// unfinished operations that exclude each other, because one locks what the other one locks or is about, the later one
// waits. The order is that of acceptance ([OperationStatus].AcceptedVersion), so an operation that waits keeps its
// place and those behind it wait too. It says so in its conditions, with reason WaitingForLock and the operation right
// before it in the message; its timeout goes on, and it can be cancelled or deleted. Locks order the webhooks and
// compensations of operations; a notification needs none, and an operation without webhooks does not wait. They end
// with the operation: a receiver that goes on with what was cut at a timeout is not held back. An operation that waits
// inside of a webhook for one that it locks out ends by a timeout.
//
// # Conventions
//
// Durations are Go duration strings ("30s", "2h"), above zero unless said otherwise. Fields with a default are plain
// values whose zero means "not set"; a pointer means that zero has a meaning of its own. Types are data: they are safe
// to read concurrently, and changed by one owner.
//
// +kubebuilder:object:generate=true
// +groupName=fairlead.io
package v1alpha1
