// Package fair divides a bounded resource between keys, such as namespaces, so that no key can take it from the others.
// Its parts are:
//
//   - [Queue] owns the order of items. Keys take turns, and the items of a key are served first in, first out. It also
//     finds the key that holds the most, whose items are dropped or evicted first.
//   - [Tally] owns the amount that each key uses of a bounded resource, from which its owner derives a fair bound.
//   - [Slots] owns concurrency, bounded by group and then by member, and wakes the callers that wait for it.
//   - [Semaphore] owns concurrency likewise, but blocks its callers for a bounded time, and may have a rate.
//   - [Budget] owns work over time, in number and in bytes, as token buckets that may be overdrawn.
//   - [Cache] owns entries, and evicts the oldest one of the largest group.
//   - [Workers] owns goroutines, one for each key with work.
//
// A Queue only orders. Work in progress has left it, and its owner bounds that work. The bounds are in these places:
//
//   - number in progress, of groups and members: Slots (calls of Webhooks: operations/executor/calls.go) and Semaphore
//     (requests: operations/httpapi/limits.go, internal/access)
//   - bytes in progress, of a group: BudgetOptions.Abreast (writes: operations/executor/budget.go)
//   - number and bytes over time, of a group: Budget (operations/executor/budget.go)
//   - number of waiters, of a group and in total: Semaphore (makeRoom; a refusal is a BusyError, which
//     operations/httpapi/limits.go and internal/access answer), and the owner of a Queue with Queue.MakeRoom
//     (operations/executor/events.go). Nothing bounds the waiters of one member. Slots and Budget bound none, since
//     each waiter is an operation.
//   - anything else: the owner of a Queue or Tally (operations/webhook, operations/internal/compiled, internal/serve)
//
// A Queue has keys, and no members of a key: Slots and Semaphore have both. A new bound belongs to the type that owns
// the resource: to the check before a start, to the count at the start, and to the return at the end. A bound on work
// compares with the work in progress only, so that no work is too large to ever start. A bound that a user can meet is
// also in docs/SECURITY.md ("Bounds for tenants") and docs/troubleshooting.md.
//
// A waiter of Slots or of a Budget is woken when it is its turn. It then asks again with the same key, for which the
// share is reserved. Queue, Tally and Cache have no lock: their owner guards them. The other types are safe for
// concurrent use and run no callback under their lock.
package fair
