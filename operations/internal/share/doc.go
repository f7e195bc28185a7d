// Package share divides what an executor has between namespaces first, and between the tenants of each then.
//
// A [Budget] bounds what is done over time, in number and in bytes ([Effort] says what an object costs); [Slots] bound
// what is under way at a time. Who has to wait is woken when it is its turn, and asks again with the same key: what it
// waited for is kept for it then. A [Queue] is for one who does the work of all, one after the other. In each of them
// those that wait take turns by tenant or namespace (rota.go), so nobody waits long behind one who has many. A [Crew]
// does the work of each namespace in a goroutine of its own.
//
// Nothing in it knows of operations. All but [Queue] are safe for concurrent use, and call nobody under its lock.
package share

// Usage is who waits for a share, of how many namespaces, and how often somebody had to.
type Usage struct{ Waiting, Namespaces, Waits int }
