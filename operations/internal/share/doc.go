// Package share divides the capacity of an executor first between namespaces, and then between the tenants of each
// namespace.
//
// A [Budget] bounds work over time, in number and in bytes ([Effort] is the price of an object). [Slots] bound
// concurrent work. A waiting caller is woken when it is its turn. It then asks again with the same key, for which the
// share is reserved. A [Queue] orders work for a single worker. In all of them, waiters take turns by tenant or
// namespace (rota.go), so that a waiter is not delayed by a tenant with many waiters. A [Crew] works for each namespace
// in its own goroutine.
//
// The package is independent of operations. All types except [Queue] are safe for concurrent use. No callback runs
// under a lock.
package share

// Usage is the number of waiters, of their namespaces, and of all waits so far.
type Usage struct{ Waiting, Namespaces, Waits int }
