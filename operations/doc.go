// Package operations turns slow requests of an API service into Operations. The service answers at once, and an
// executor makes the remote calls of the request in the background. Every Operation ends, and its status gives the
// reason.
//
// An API service imports only this package. A [Scheduler] writes Operations, one per resource at a time:
//
//	s, err := operations.NewScheduler(operations.Options{Config: cfg, Namespace: "shop"})
//	op, err := s.Schedule(ctx, operations.Request{
//		Type: operations.Delete, Category: "unregisterApplication",
//		Resource: operations.Resource{Type: "Application", ID: app.ID},
//		Webhooks: []string{"cleanup"}, Object: app,
//	})
//	if errors.Is(err, operations.ErrInProgress) { … } // the previous one must finish first
//
// [Async] offers the same as HTTP middleware, with the conventions of RFC 7240 (Prefer: respond-async).
//
// Package operations/executor runs Operations, operations/httpapi serves them over HTTP, and operations/outbox
// schedules them with the commit of the caller's own SQL transaction.
//
// # Invariants
//
//   - A resource has at most one unfinished operation (O3). The API server arbitrates between schedulers: of two
//     concurrent requests exactly one wins and the other gets [ErrInProgress].
//   - The id identifies a request. Scheduling the same id again starts nothing and returns the existing Operation or
//     its outcome.
//   - An accepted request is never replaced before it ends. Until the executor picks it up, it counts as in progress,
//     whatever the status says about the previous operation.
//   - An invalid request is refused with all its problems before anything is written.
//
// # Parts
//
// No part has state or a lock that outlives a call.
//
//   - Scheduler (scheduler.go) is the API. It connects the others and names the resource in errors.
//   - objects (objects.go): reads and writes Operations by name. objectClient implements it on the API server.
//   - schedule, retry and cancel (schedule.go, cancel.go): requests as functions of objects. A contest (contest.go)
//     bounds their races with other writers. judge.go decides how a request relates to the existing Operation.
//   - awaited (wait.go): finds the outcome of an operation in events.
//   - async (async.go): the HTTP middleware.
package operations
