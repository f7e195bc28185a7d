// Package executor runs Operations to their end.
//
// Every Operation has one flow (package flow), keyed by namespace and name, fair between namespaces and within each between tenants. The flow asks
// [plan] what is due, does it, and asks again; while nothing is due it is parked without a goroutine. Everything that
// plan needs stands in the status, so a flow that is lost with its process is started again from there by whoever
// takes over.
//
// A call under way is a goroutine with a slot (slots.go) and a permit of its endpoint; its flow is parked meanwhile and told
// when it comes back. So calls of one operation do not wait for each other, a cancellation reaches them at once, and a
// tenant whose calls hang leaves slots for the others.
//
// # Shares
//
// Everything is shared by namespace first, and by tenant within it: workers (flow.StartOptions.Subgroup), calls under way (slots.go), calls per second
// and writes to the API server in number and bytes (budget.go, share.go), what is compiled (hooks.go), statuses of Webhooks (hookstatus.go), how
// often edits of Webhooks wake operations (stir.go) and Events (event_queue.go). What has to wait is parked with nothing but its changes, and is
// woken when it is its turn; its next write says for what it waits. The ends of operations go first, and what calls have brought is recorded at
// once when the executor is about to end.
//
// # Order of writes
//
// The status is written before a call (it then names the attempt, invariant O2), before the flow parks, and at the
// end; what happened in between is part of the next write. An operation with one synchronous webhook costs two
// writes here, and its creation is the third.
//
// # Locks
//
// Operations that exclude each other by locked resources take turns in the order of the resource versions at which they were picked up
// (O4, lock.go). Before its first call an operation waits until the store has heard of all that came before it and none of those excludes
// it; the write that records the first attempt holds only if it has kept its place. Nothing else is written for it.
//
// # Fencing
//
// What a call brought is applied only if the status still names its operation and its attempt. Writes carry the
// resource version that they were computed from; a conflict leads to a new look, never to a second outcome (O1).
//
// # Taking over
//
// An executor begins at once, whatever its cache knows: what it writes holds for the version that it was computed from, so a state that is not
// the newest one is found out by the write that precedes every new attempt. Only what is done without a write, a poll or the repetition of an
// attempt that is recorded, could have been done by a predecessor already; before that, an operation that the executor has not written itself is
// read from the API server, once, unless the store is known to have caught up since.
//
// # Ending
//
// [Executor.Drain] begins no calls and waits for those under way, until what they brought is recorded. The end of the context of Run cuts off what
// is left, to be repeated with the same keys.
//
// # Time
//
// No timeout ends too soon: times in the status are whole microseconds, rounded up, and the creation of an object counts as the end of its second
// (v1alpha1.Operation.Deadline).
package executor
