// Package executor runs Operations to their end.
//
// Every Operation has one flow (package flow), keyed by namespace and name and fair between tenants. The flow asks
// [plan] what is due, does it, and asks again; while nothing is due it is parked without a goroutine. Everything that
// plan needs stands in the status, so a flow that is lost with its process is started again from there by whoever
// takes over.
//
// A call under way is a goroutine with a slot (slots.go) and a permit of its endpoint; its flow is parked meanwhile and told
// when it comes back. So calls of one operation do not wait for each other, a cancellation reaches them at once, and a
// tenant whose calls hang leaves slots for the others.
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
package executor
