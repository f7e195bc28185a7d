// Package leasing has the parts with which processes hold Leases (coordination.k8s.io/v1). The leader election of
// reconcile/lease and the members of shard/group use them.
//
//   - [Client] sends the requests, each with a timeout.
//   - [Record] is a Lease that this process writes, one version after the other.
//   - [Claim] is a Record for which several identities compete.
//   - [Renewal] says until when a holder may act, and runs the loop that renews. Renewals overlap if they do not name
//     the version that they replace.
//   - [Observation] says how long the Lease of another process has not been renewed.
//
// # Contract
//
// A write of Record and Claim names the uid and the version that it replaces. Of two processes that read the same
// version, only one can write. If the response to a write is lost, the next write conflicts. Record and Claim then read
// the Lease again, and the caller decides by what is there.
//
// A holder may act while its last renewal began less than a bound ago. The renewal counts from the time before its
// request, so no other process can have started to count earlier. A renewal that arrives after the bound does not
// extend the hold: the holder ends its work first.
//
// Another process takes a Lease over only after it has seen the same version for the whole duration of the Lease. The
// bound of the holder must be less than that duration.
//
// The package compares only durations, never the clocks of two machines. The monotonic clock of a machine may stop
// while it sleeps, and its wall clock may be set. A holder uses the clock on which more time has passed, and an
// observer the clock on which less has passed. So a paused process detects, without a request, that its hold has ended.
package leasing
