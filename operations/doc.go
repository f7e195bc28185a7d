// Package operations turns slow requests of an API service into Operations: the service answers at once, and the
// remote calls that the request needs run apart from it, to an end that always comes and always has a reason.
//
// It is all that an API service links. A [Scheduler] writes Operations, one per resource at a time:
//
//	s, err := operations.NewScheduler(operations.Options{Config: cfg, Namespace: "shop"})
//	op, err := s.Schedule(ctx, operations.Request{
//		Type: operations.Delete, Category: "unregisterApplication",
//		Resource: operations.Resource{Type: "Application", ID: app.ID},
//		Webhooks: []string{"cleanup"}, Object: app,
//	})
//	if errors.Is(err, operations.ErrInProgress) { … } // the previous one must finish first
//
// [Async] is the same as HTTP middleware, with the conventions of RFC 7240 (Prefer: respond-async).
//
// Package operations/executor runs what was scheduled, operations/httpapi shows it over HTTP, and operations/outbox
// schedules with the commit of the caller's own SQL transaction.
//
// # Invariants
//
//   - At most one unfinished operation per resource (O3). The API server itself decides between two schedulers: of two
//     requests exactly one wins and the other gets [ErrInProgress].
//   - A request is known by its id: scheduling the same id again runs nothing and answers with what became of it.
//   - An accepted request is never replaced before it has ended; until the executor has picked it up it counts as in
//     progress, whatever the status says of the operation before.
//   - An invalid request is refused with every reason before anything is written.
package operations
