// Package reconcile runs controllers. A controller calls a reconciler for each object of one kind, whenever that object
// or an object that concerns it may have changed. At most one call runs for an object at a time.
//
//	reconcile.New[v1.Gateway](rt, "gateways", &Gateways{Client: rt.Client()},
//		reconcile.Owns[corev1.Service](),
//		reconcile.Watches(func(s *corev1.Secret) []reconcile.Key { return usersOf(s) }),
//		reconcile.Finalizer("example.com/gateways"),
//	)
//
//	func (r *Gateways) Reconcile(ctx context.Context, gw *v1.Gateway) (reconcile.Result, error) {
//		ip, err := alloc.Once(ctx, r.Client, gw, "public-ip", r.Cloud.ReserveIP)
//		if err != nil { return reconcile.Retry(err) }
//		// The next read sees what this writes, and it leads to no extra reconciliation.
//		return reconcile.Done, client.ModifyStatus(ctx, r.Client, gw, withReady(ip))
//	}
//
// # When a reconciler is called
//
// A controller first lists everything that it watches, and then reconciles each object once. It reconciles an object
// again when the object changes, or when an object that concerns it changes ([Owns], [Watches], [Follow]). It also does
// so after a failure, when a result asks for it ([After]), and at least once in [MaxInterval]. [InfoFrom] returns the
// events that led to a call.
//
// The writes of a reconciler lead to no further call, if it uses its context and the client of the host. Its next read
// already shows them. A delete is an exception: the controller reconciles once more when the watch reports that an
// object is gone. The controller never takes the write of another client for its own (C3). In case of doubt it
// calls the reconciler once more.
//
// Any number of events during a call lead to exactly one further call. With [Preempt], an event that changes the spec
// cancels the context of the running call. Live changes precede initial objects and intervals, and namespaces take
// turns. [RateLimit] bounds how often one object is reconciled; [TotalRateLimit] bounds the calls for all objects
// together.
//
// A reconciler lists the objects that an object owns from the cache, without a request. The list includes its own
// writes:
//
//	for pod, err := range client.List[corev1.Pod](ctx, c, client.OwnedBy(domain)) { … }
//
// The cache of a watch that [From] restricts to some labels answers only reads of these labels.
//
// # Failures
//
// The controller retries after an error or a panic, with exponential back-off and jitter. It honors the Retry-After of
// a server, up to one hour, and retries conflicts soon. [Terminal] records an error until the spec changes. Events
// during a back-off do not shorten it, unless the spec (metadata.generation) has changed or the deletion has begun. If
// a reconciler returns an error together with [After], the error decides.
//
// Each failure is logged, with the stack of a panic, and counted in fairlead_reconcile_total. [Controller.Failures],
// [Controller.Describe] and [DebugHandler] list the failures; the fairlead runtime serves the latter at
// /debug/controllers. The log is the [Logger] of the controller or else that of its host. After a terminal error or a
// panic, the controller writes an Event about the object ([WithoutEvents]). A reconciler shows failures to users in the
// status: see the example of [SetCondition].
//
// # Deletion
//
// A [Cleaner] has a finalizer. The controller adds it before the first Reconcile and removes it after Cleanup. It keeps
// the finalizer while package alloc still holds something for the object. A reconciler without Cleanup also receives
// objects that are being deleted.
//
// # A flow for each object
//
// [Flow] runs a fiber of package flow for each object instead of a function, for work that takes long. A waiting fiber
// occupies no worker, and its position is in the status of the object. A newer generation preempts the fiber. Its Undo
// steps run on deletion.
//
//	reconcile.Flow(rt, "domains", engine, reconcile.Fibers[v1.Domain, v1.Domain]{
//		Flow:     bringUp,
//		Position: func(d *v1.Domain) **flow.Position { return &d.Status.Flow },
//	}, reconcile.Owns[corev1.Pod]())
//
// A step may allocate with package alloc, and its Undo may release: the contexts of steps carry the finalizer.
//
//	flow.Step("address", flow.Do(func(ctx context.Context, t *reconcile.Task[v1.Gateway]) error {
//		_, err := alloc.Once(ctx, t.Client, t.Object, "public-ip", cloud.ReserveIP)
//		return err
//	}), flow.Undo(flow.Do(func(ctx context.Context, t *reconcile.Task[v1.Gateway]) error {
//		return alloc.Release(ctx, t.Client, t.Object, "public-ip", cloud.ReleaseIP)
//	})))
//
// # Leadership
//
// With [Leader], only one process works. When it loses leadership, contexts end and no new request is sent. A request
// already in flight can only conflict: each update, patch and apply carries the resourceVersion that it was computed
// from.
//
// # Invariants
//
// At most one call runs for each key, also when its object is deleted and created again meanwhile. No lock is held
// while a user's function is called, and its panic affects only its object. A controller has one goroutine, and one
// more for each running call. An idle object without history takes no memory.
//
// # Parts
//
// A [Controller] connects the following parts. A part with a lock owns its state; no other part reads it. The pump and
// the workers are the goroutines that connect them.
//
//   - declaration (declaration.go, watch.go): the watches and their kinds. Lock: mu.
//   - lifetime (lifetime.go): the phase of the controller, and its early end after a permanent failure. Lock: mu.
//   - intake (intake.go): the open watches; turns events into keys and reasons. Lock: mu. follows (follow.go): the
//     watches of [Follow]; their lock is not held during calls of the intake.
//   - scheduler (scheduler.go): when each object is reconciled, and the number of workers. One lock, mu, guards the
//     queue (queue.go, item.go), the rate limits (rate.go) and the running reconciliations (running.go), since each
//     decision concerns all of them. retries (retry.go) holds the rules for the time of the next attempt.
//   - pump (pump.go) repeats a step of intake and scheduler. workers (worker.go) are the goroutines that reconcile.
//   - caller (caller.go) performs one reconciliation, with finalizer, bindings (binding.go), tracer (trace.go) and
//     reporter (report.go). elections (election.go) waits for leadership. They have no state, except that the reporter
//     knows whether the last Event was written.
//   - sharing (share.go): the gained slots that are not open yet. Lock: mu, taken before that of the slots.
//   - fiberSet (fibers.go): the fibers of [Flow], by object. Lock: mu. flows (fiber.go) is the reconciler behind Flow.
//   - inspection (describe.go, why.go, debug.go) and metrics read snapshots of the parts (snapshot.go).
//
// Lock order: the lock of the scheduler, or of sharing, before that of the slots (internal/handover). No part takes the
// lock of another part under its own.
package reconcile
