// Package controller is the command fairlead controller: the operations controller and its HTTP API. [Run] is also used
// by fairlead up.
//
// command.go and options.go have the flags. controller.go creates the parts, connects them and starts them:
//
//   - listen.go: the flags of the HTTP API and the open ports. No lock; the ports do not change.
//   - site.go: the pages behind the ports. No state. local.go refuses requests from other sites.
//   - targets.go: the addresses that Webhooks must not reach. It connects three parts with a mutex each: addresses.go
//     (addresses of the API server, by time), ranges.go (ranges of services and pods, by resource) and checklist.go
//     (sources that are not known yet). ranges_sink.go reads the ranges; one goroutine of its source uses it.
//   - credentials.go: the flags that bound targets and credentials.
//   - caches.go: the watched objects. No lock; the handles do not change.
//   - election.go: leadership by a Lease. An atomic pointer holds the current term.
//   - sharing.go: membership in the group of --shards. The group and the slots have their own locks.
//   - worker.go: runs the executor for one term. No state.
//   - callback.go: the key of callback tokens, in a Secret that all replicas share.
//   - crashes.go: reports of crashes, for the quarantine of Webhooks.
//   - tracing.go: exports spans. A sync.Once guards its warning.
//
// No part holds its lock while it calls another part.
package controller
