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
// A waiter of Slots or of a Budget is woken when it is its turn. It then asks again with the same key, for which the
// share is reserved. Queue, Tally and Cache have no lock: their owner guards them. The other types are safe for
// concurrent use and run no callback under their lock.
package fair

// Party identifies a member of a group, for example a tenant of a namespace.
type Party struct{ Group, Member string }

// Usage is the number of waiters, of their groups, and of all waits so far.
type Usage struct{ Waiting, Groups, Waits int }

// request is a caller that waits for a share, or has not fetched a granted one yet.
type request struct {
	key     any // chosen by the caller
	wake    func()
	cost    Price
	urgent  bool
	granted bool
}
