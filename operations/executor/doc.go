// Package executor runs Operations to their end.
//
// Every Operation has one flow (package flow), keyed by namespace and name, fair between namespaces and within each
// between tenants. The flow asks [plan] what is due, does it, and asks again; while nothing is due it is parked without
// a goroutine. Everything that plan needs stands in the status, so a flow that is lost with its process is started
// again from there by whoever takes over.
//
// A call under way is a goroutine with a slot (admit.go) and a permit of its endpoint; its flow is parked meanwhile and
// told when it comes back. So calls of one operation do not wait for each other, a cancellation reaches them at once,
// and a tenant whose calls hang leaves slots for the others.
//
// # Reading order
//
// From the entry down. A file uses what comes after it, but for a few cases: mostly the types of fields of Executor.
//
//   - How it lives: lifecycle (New and Run), shards (what of it is here), watch (what starts and wakes flows).
//   - What the flow of an operation does: advance (one look after the other), start (calls that are due), call, report,
//     finalizer, acceptance (doubts about the order), admit (a call's shares), write (reads and writes of the API
//     server).
//   - What goes on beside it: taker (callbacks), hookstatus and quarantine, events, client, fence.
//   - What is decided and recorded, as pure functions: change, key, unrecorded, plan.
//   - What several share: drain, attempts (the tries that are remembered), lock, executor (Options, and what an Executor holds), trust, run (what there is of an
//     operation), metrics, callback, witness, toolarge, budget, stir, place, secrets, release.
//   - Packages that know nothing of operations: operations/internal/share (who may have how much, and when), and
//     operations/internal/compiled (Webhooks ready for calls).
//
// # Shares
//
// Everything is shared by namespace first, and by tenant within it: workers (flow.StartOptions.Subgroup), calls under
// way, calls per second and writes to the API server in number and bytes (budget.go), what is compiled
// (operations/internal/compiled), statuses of Webhooks (hookstatus.go), how often edits of Webhooks wake operations
// (stir.go) and Events (events.go). What has to wait is parked with nothing but its changes, and is woken when it is
// its turn; its next write says for what it waits. The ends of operations go first, and what calls have brought is
// recorded at once when the executor is about to end.
//
// # Order of writes
//
// Before a call a durable record says that it is about to be made (invariant O2). For the first try of an ordinary
// operation that is the object that the API server has accepted; what is ordinary, and on what conditions, stands in
// unrecorded.go. Every other call is recorded in the status first, which then names the attempt. The status is written
// before the flow parks, too, unless its only news is an unrecorded call of less than half a second, and at the end;
// what happened in between is part of the next write. Tries that fail again at once are written once a second
// (repeated.go). An operation with one synchronous webhook costs one write here,
// and its creation is the second. It costs another one where the call is recorded first.
//
// # Locks
//
// Operations that exclude each other by locked resources take turns in the order in which they were accepted (O4,
// lock.go, acceptance.go). Before its first call an operation waits until the store has heard of all that
// came before it and none of those excludes it. A write that records the first attempt holds only if the operation has
// kept its place; one whose call is not recorded keeps it whatever is written to it. Nothing else is written for it.
//
// # Fencing
//
// What a call brought is applied only if the status still names its operation and its attempt. Writes carry the
// resource version that they were computed from; a conflict leads to a new look, never to a second outcome (O1).
//
// Before anything is sent, [Options.Fence] is asked whether this process may still act. It goes by the clock, so one
// that was stopped for longer than its lease lasts sends nothing more, whatever it was about to do, but for the calls
// that had leave already; those carry the same keys.
//
// # Taking over
//
// An executor begins at once, whatever its cache knows: what it writes holds for the version that it was computed from,
// so a state that is not the newest one is found out by the write that precedes a new attempt. Only what is done
// without a write could have been done by a predecessor already: a poll, the repetition of an attempt that is recorded,
// a call that is not recorded. Before the first two, an operation that the executor has not written itself is read from
// the API server, once, unless the store is known to have caught up since. Until it has, every call is recorded first.
// An operation of which nothing is recorded may have been called: its first attempt has the same id and key whoever
// makes it.
//
// # Slots
//
// With [Options.Shards] an executor works on the namespaces of the slots that it has gained in a group of replicas
// (package shard/group), and lets go of each as soon as nothing of it runs any more (shards.go). A slot that leaves begins
// no call; those under way come back and are recorded, as when the executor drains, and nothing else is done for it: no
// compensation, no end, no finalizer. Each request is asked for at the fence of its slot. A slot that comes, or comes
// again, is taken over like that of a predecessor. Callbacks are taken by every replica, and Webhooks, Secrets and
// service accounts are known to all of them; the shares of namespaces are kept by each replica for itself.
//
// # What is too large, and what kills
//
// An Operation into which nothing more goes ends, and gives way until its end can be written (course.Thinness). A Webhook
// whose code kills the process is not used until it is changed: operations wait for it as for one that does not exist
// (quarantine.go, witness.go).
//
// # Ending
//
// [Executor.Drain] begins no calls and waits for those under way, until what they brought is recorded. The end of the
// context of Run cuts off what is left, to be repeated with the same keys.
//
// # Credentials
//
// A Webhook is called when what it names is released (release.go): Secrets by their label, service accounts by the
// audiences in their annotation. Until then its operation waits, as for a Webhook that does not exist, and goes on by
// the event of the release. What is released no more is not sent again.
//
// # Time
//
// No timeout ends too soon: times in the status are whole microseconds, rounded up, and the creation of an object
// counts as the end of its second (v1alpha1.Operation.Deadline).
package executor
