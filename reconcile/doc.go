// Package reconcile runs keyed controllers: a function that brings the world to what an object asks for, called once
// at a time for each object whenever something may have changed.
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
// # When it is called
//
// For each object once everything that the controller watches has been listed, then when the object or one that
// concerns it ([Owns], [Watches], [Follow]) changes, after a failure, when a result asked for it ([After]), and at
// least once in the maximum interval. What a reconciler writes itself, with the context that it was given and the
// host's client, leads to no further call: its next read shows it already. A foreign change is never taken for an own
// one (C3); when that is not certain, there is one call more. [ReasonsFrom] tells which events led to a call.
//
// Events while a call is running lead to exactly one more; with [Preempt] one that changes the spec ends the context
// of the running one. Initial objects and intervals wait for live changes, and namespaces take turns. [RateLimit]
// bounds how often one object is reconciled, [TotalRateLimit] how often all of them together are.
//
// What an object owns is listed from the cache, without a request, own writes included:
//
//	for pod, err := range client.List[corev1.Pod](ctx, c, client.OwnedBy(domain)) { … }
//
// A watch that [From] restricts to some labels answers only reads of these.
//
// # Failures
//
// An error, or a panic, is tried again after a back-off with jitter; a server's Retry-After is honoured, up to
// one hour; conflicts are tried again soon. [Terminal] records an error until the spec changes. Events during
// a back-off do not shorten it, unless the spec (metadata.generation) has changed or the deletion has begun. Of an
// error and [After] the error decides.
//
// No failure is silent: each is logged, with the stack of a panic, by the [Logger] of the controller, or that of its
// host, counted in fairlead_reconcile_total, and listed by [Controller.Failures], [Controller.Describe] and, on the
// fairlead runtime, /debug/controllers ([DebugHandler]). Where the object is at fault, after a terminal error or a
// panic, there is an Event about it ([WithoutEvents]). To users a reconciler tells it in the status: see the example
// of [SetCondition].
//
// # Deletion
//
// A [Cleaner] has a finalizer, added before the first Reconcile and removed after Cleanup, unless package alloc still
// holds something for the object. A reconciler without Cleanup is given objects that are being deleted, too.
//
// # A flow for each object
//
// Where bringing an object up takes long, [Flow] runs a fiber of package flow for it instead of a function: it waits
// without a worker, its position is in the status, a newer generation preempts it, and its Undo steps run on
// deletion.
//
//	reconcile.Flow(rt, "domains", engine, reconcile.Fibers[v1.Domain, v1.Domain]{
//		Flow:     bringUp,
//		Position: func(d *v1.Domain) **flow.Position { return &d.Status.Flow },
//	}, reconcile.Owns[corev1.Pod]())
//
// A step may allocate with package alloc, and its Undo release: the contexts of steps know the finalizer.
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
// With [Leader] only one process works. On loss contexts end, no new request is sent, and as every update, patch and
// apply carries the resourceVersion that it was computed from, one already on the wire can only conflict.
//
// # Invariants
//
// At most one call runs for each key, also when its object is deleted and created again meanwhile. No lock is held
// while a user's function is called, and a panic of one concerns its object only. There is one goroutine for each
// controller and one for each running call. An object that waits for nothing takes no memory.
//
// # Reading order
//
// Each file rests on those before it, with few exceptions:
//
//   - what a user writes and gets: reconcile.go, reason.go, errors.go, event.go, owner.go, condition.go, watch.go,
//     rate.go, option.go, host.go;
//   - what is reconciled when: item.go, queue.go, metrics.go, controller.go;
//   - what leads to it: follow.go, intake.go, lifecycle.go;
//   - the work on one object: failure.go, finalizer.go, worker.go;
//   - a fiber instead of a function: flow.go, fiber.go;
//   - looking at it: describe.go, debug.go.
package reconcile
