// Package executor runs Operations until they end.
//
// An [Executor] calls the Webhooks that each Operation names, and records every outcome in the status of the
// Operation. It repeats failed calls, polls, takes callbacks, and calls the compensations when an Operation fails.
// The status holds everything that is needed to continue after a crash. A process that takes over continues from the
// status, and repeats a call only with the same idempotency key.
//
// Every Operation has one flow (package flow), keyed by namespace and name. The flow asks course.Plan which action is
// due, takes that action, and asks again. While no action is due, the flow is parked without a goroutine. The engine
// is fair between namespaces, and between the tenants of a namespace.
//
// A call under way runs in its own goroutine, with a call slot (calls.go) and a permit of its endpoint. The flow is
// parked meanwhile and is woken when the call returns. So calls of one operation do not wait for each other, and a
// cancellation reaches them at once. A tenant whose calls hang leaves slots for other tenants.
//
// # Parts
//
// [Executor] creates the parts and connects them (lifecycle.go). Each part owns its state, and can be built alone:
//
//   - stepper (advance.go): the flow of an operation. It asks course.Plan, and has the other parts act, most of them
//     behind the interfaces at its head. starter (start.go, call.go): starts calls and applies their results. Neither
//     has state: that of an operation is its run.
//   - intake (watch.go): starts and ends the run of an operation. hookWatcher: tells others about changes of Webhooks.
//     tenancy (shards.go): begins and ends the work on slots. They have no state but the slots to take over.
//   - runs: the live run of each operation, wake-ups, counts, acceptances and readers. Its lock guards the shared
//     fields of a run.
//   - ownership: slots, fences, and the client for writes in a namespace; the lock of handover.Slots.
//   - freshness: the namespaces in which the store has the writes of a predecessor; own lock.
//   - locks: the order of operations that exclude each other; stateless. lines: those that wait for another; own lock.
//   - calls: calls under way, with their shares and permits; the locks of fair.Slots, fair.Budget and holders.
//   - writes: reads and writes of the API server for a draft, the part of a run that is written; the locks of
//     fair.Budget and trust.
//   - drain: operations with calls under way or unrecorded results; own lock.
//   - troubles: operations with failing requests to the API server; own lock.
//   - hookStatus: statuses of Webhooks to write; own lock. quarantine: Webhooks that crash the process; immutable.
//     knownHooks: what the flow needs to know about Webhooks; stateless.
//   - reporter, spans and explainer report and explain what the others do. They have no state.
//   - Small parts with a lock each: attempts, tried, holders, paces, trust, secrets, webhookChanges, tally, Events,
//     CrashLog. releases, Callbacks and Taker have no lock.
//
// The lock of runs may be held when the lock of handover.Slots, lines, drain, troubles or tally is taken. No other two
// of these locks are held together. The fields of a run that are not shared belong to its flow. Readers get a snapshot
// of them while the flow is parked.
//
// Packages below this one: operations/internal/course (decisions and status changes, as pure functions),
// operations/internal/record (the calls in a status), operations/internal/causes (explanations of waits),
// operations/internal/effort (the price of an object), operations/internal/compiled (compiled Webhooks), internal/fair
// (shares of namespaces and tenants).
//
// # A new reason to wait
//
// A reason that is a fact about an object beside the operation, such as its Webhook, needs these parts:
//
//   - the reason: operations/api/v1alpha1 (operation_status.go). A new field of a Webhook also needs webhook_types.go
//     and `make generate`, which writes the CRD.
//   - the fact: a field of course.WebhookFacts (operations/internal/course/plan.go), which hookfacts.go fills. From the
//     spec of a Webhook it is in Times of operations/internal/compiled/cache.go. release.go is an example of a fact
//     from the status of a Webhook and its namespace.
//   - the wake-up when the fact changes: hookwatch.go and release.go. An object of another kind needs a store: its
//     source in cmd/fairlead/internal/controller (caches.go), the option in executor.go, and the right to watch it in
//     deploy/rbac.yaml and deploy/chart/templates/rbac.yaml.
//   - the decision: course.Plan, also for compensations and notifications; start.go for calls at the deadline and for
//     calls that must leave the queue for a slot (unwanted)
//   - the condition (report.go), operations.View (operations/view.go), and the description of waiting in
//     operations/httpapi/openapi.json
//   - the cause: hook.go (constructor), awaited.go and ended.go of operations/internal/causes, and why.go. A new type
//     of cause has its text in why/cause.go and its rank in why/answer.go; other waits use a type that exists.
//   - the metric: tally.go, and stuckText in operations/console/section.go, for waits that count as stuck
//   - the pages: docs/troubleshooting.md; for a new type of cause also docs/metrics.md; for a new right
//     docs/SECURITY.md
//   - the tests of these files, and of the whole: release_test.go, why_judged_test.go, operations/internal/causes
//     (of_test.go)
//
// A cause whose wait has a declared end needs that bound (awaited.go and of.go of causes), or the operation counts as
// stuck from the beginning. Before the bound, neither the metric of stuck operations nor the console counts it. A wait
// for a turn is a refusal of calls.admit instead (flight.go), which why.go and snapshot.go explain.
//
// # Shares
//
// Every resource is shared by namespace first, and by tenant within it:
//
//   - workers (flow.StartOptions.Subgroup) and calls under way
//   - calls per second, and writes to the API server by number and bytes (budget.go)
//   - compiled Webhooks (operations/internal/compiled) and the statuses of Webhooks (hookstatus.go)
//   - how often edits of Webhooks wake operations (webhookchanges.go)
//   - Events (events.go)
//
// An operation that waits for its share is parked with its unsaved changes only, and is woken when its turn comes.
// Its next write names the share that it waits for. Terminal statuses are written first. When the executor drains,
// the results of calls are written without waiting for a share.
//
// # Order of writes
//
// A durable record precedes every call (invariant O2). For the first try of an ordinary operation, that record is the
// object that the API server has accepted; unrecorded.go defines the conditions. Every other call is first recorded
// in the status, with its attempt.
//
// The status is also written at the end, and before the flow parks. A flow that parks does not write yet if its only
// change is an unrecorded call of less than half a second. Changes in between are part of the next write. Tries that
// fail again at once are written once a second (repeated.go). An operation with one synchronous webhook costs one
// write here, in addition to its creation. It costs one more if the call is recorded first. An operation that waits for
// a poll costs one more for its finalizer, which is added during the first call.
//
// # Locks
//
// Operations that exclude each other by locked resources take turns in the order in which they were accepted (O4;
// lock.go, acceptance.go). Before its first call, an operation waits until the store has received every event up to
// its place in that order. It also waits until no earlier operation excludes it. A write that records the first
// attempt is conditional on that place. An operation whose call is not recorded keeps its place whatever is written
// to it. Locks cost no other write.
//
// # Fencing
//
// The result of a call is applied only if the status still names its operation and its attempt. Writes carry the
// resource version from which they were computed. After a conflict the flow plans again, so an operation never gets a
// second outcome (O1).
//
// The executor asks [Options.Fence] before each request, except those of callbacks, whether this process may still
// act. The fence goes by the clock. A process that was stopped for longer than its lease lasts sends no further
// request. The exception is a call that the fence had already allowed, which carries the same key as its repetition.
//
// # Taking over
//
// An executor starts at once, even with an outdated cache. Its writes are conditional on the version from which they
// were computed. So the write before a new attempt detects an outdated state. Only actions without a preceding write
// could repeat an action of a predecessor: a poll, the repetition of a recorded attempt, and a call that is not
// recorded.
//
// Before a poll or a repetition, the executor reads the operation once from the API server. It need not if it has
// written the operation itself, or if the store is known to have caught up. Until the store has caught up, every call
// is recorded first. The first call of an operation without any record may have been made already. Its first attempt
// has the same id and key in every process.
//
// # Slots
//
// With [Options.Shards], an executor works on the namespaces of the slots that it has gained in a group of replicas
// (package shard/group). It releases a leaving slot as soon as no work of that slot is running (shards.go). A leaving
// slot starts no call. Calls under way return and are recorded, as in a drain. The executor then makes no further
// request for that slot: no compensation, no terminal status, no finalizer.
//
// Each request is checked against the fence of its slot. A slot that is gained, or gained again, is taken over as
// from a predecessor. Every replica takes callbacks and knows all Webhooks, Secrets and service accounts. Each
// replica keeps its own shares of namespaces.
//
// # Size limits and crashes
//
// An Operation that has reached the size limit fails. Details are dropped until its terminal status fits
// (course.Thinness). A Webhook whose templates or expressions crash the process is not used until it changes.
// Operations wait for it as for a Webhook that does not exist (quarantine.go, witness.go).
//
// # Ending
//
// [Executor.Drain] starts no calls, and waits until the calls under way have returned and their results are recorded.
// When the context of Run ends, calls that are still under way are cancelled. The successor repeats them with the
// same keys.
//
// # Credentials
//
// A Webhook is called only when the credentials that it names are released (release.go): Secrets by a label, service
// accounts by the audiences in an annotation. Until then its operations wait, as for a Webhook that does not exist.
// The event of the release wakes them. Credentials whose release is withdrawn are not sent again.
//
// # Time
//
// No timeout ends too early. Times in the status are whole microseconds, rounded up. An object counts as created at
// the end of the second in its creation timestamp (v1alpha1.Operation.Deadline).
package executor
