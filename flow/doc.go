// Package flow runs long pieces of work as fibers: named steps over a typed packet, at most one fiber per key, parked
// without a goroutine. It knows nothing of Kubernetes.
//
// # A flow
//
// A [Flow] is an immutable list of steps over a packet, the user's own struct. A step is plain Go that may block
// briefly and returns what happens next:
//
//	bringUp := flow.New[Domain]("bring-up",
//		flow.Step("admin-server", flow.Do(startAdmin)),        // func(ctx, *Domain) error
//		flow.Step("wait-ready", func(ctx context.Context, f *flow.Fiber[Domain]) flow.Next {
//			return f.Await(podReady(f.Packet.Admin), flow.Timeout(5*time.Minute))
//		}),
//		flow.Fork("managed-servers", eachServer, flow.Limit(8)),
//	)
//
// New collects what is wrong with a flow (no step, a duplicate name, an unknown target, a cycle of error handlers) in
// [Flow.Err]; Start refuses such a flow. A flow can thus be a package-level variable.
//
// What a step may return: Next (the following step), Goto (another one; a [Detour] comes back), Delay, Retry (the same
// step again), Suspend (until a [Token] is resumed), Await (until one of several [Wait]s holds), Fork (children),
// Yield, End, Fail. Waits can be told where to go on with Next.Then, and after an error with Next.Else. Options of a
// step: [Retry] with back-off, [OnError], [Deadline], [Done], [Save], [Undo], [To].
//
// # A fiber
//
// An [Engine] runs fibers on a bounded number of workers, in turn between groups (by default the namespace, that is,
// what stands before the first slash of the key), and within a group in turn between subgroups, if there are:
//
//	engine := flow.NewEngine(flow.EngineOptions{Workers: 32})
//	defer engine.Close(context.Background())
//	h, err := bringUp.Start(ctx, engine, &domain, flow.StartOptions{Key: "prod/orders", OnEnd: report})
//
// While a fiber is parked (delay, retry, suspension, await, fork) it is a record of a few hundred bytes: no goroutine,
// no runtime timer, no context. The context of a step therefore lives until the fiber parks or ends; a [Fiber.Suspend]
// keeps it until the fiber is resumed. A fiber that is cancelled, preempted or closed finds its context cancelled with
// the cause.
//
// # One fiber per key
//
// A fiber started with a key passes the gate of that key. What happens when another one is alive is the [Mode]: Preempt
// cancels it and waits until its code, children and callback included, has returned; Coalesce waits for it to finish;
// SkipIfBusy refuses. The callback of a failed fiber may start failure steps with StartOptions.IfCurrent, which starts
// nothing when another fiber has followed in the meantime. Each fiber has an epoch, higher than that of every earlier
// one of the key; [Fenced] tells a client that holds a fiber's context whether it may still write.
//
// # After a restart
//
// With [Positions] the engine records where a fiber is: when it parks, before steps marked [Save], before the first run
// of those that have an [Undo], and at the end. A fiber started after a restart goes on there, and its deadlines go on
// counting. The position is a hint, never the truth: an unknown step, another version or another generation start from
// the first step, and [Done] lets a step say that its effect is already visible.
//
// # Looking at it
//
// Every error has the path of its step ("bring-up/managed-servers[3]/wait-ready: …"); every fiber keeps a short trail
// of what it did. [Engine.Fibers] and [Engine.Stuck] list live fibers, [Engine.DebugHandler] serves them at
// /debug/flows, [Engine.Collector] has the metrics, and EngineOptions turns on spans and pprof labels.
//
// # Testing
//
// Engines work in bubbles of testing/synctest. Package flowtest explores interleavings by seed, checks F1 and F2 on
// each, and crashes a flow at every boundary.
//
// # Invariants
//
// F1: at most one fiber per key runs; a successor starts after its predecessor's code has returned.
//
// F2: a fiber ends exactly once: completed, failed, cancelled or moved; its callback always runs.
//
// Besides: no lock is held while user code runs; a panic of user code fails the fiber, with its stack, and nothing
// else; after Close no goroutine and no timer is left.
//
// # Reading order
//
// Each file rests on those before it, with few exceptions:
//
//   - what users implement or give: contract.go, errors.go, backoff.go, position.go, memory.go, provider.go;
//   - a flow as the engine knows it: time.go, next.go, def.go, child.go;
//   - a fiber as the engine keeps it: trail.go, progress.go, durable.go, numbers.go, record.go, guard.go;
//   - the engine: ready.go, timer.go, info.go, engine.go, worker.go, alarm.go, cancel.go, gate.go, fibers.go, stuck.go;
//   - what steps and others see of a fiber: handle.go, fiber.go, token.go, wait.go, context.go;
//   - building a flow: option.go, flow.go, compile.go;
//   - what the interpreter uses: log.go, trace.go, await.go, fork.go, line.go, save.go, resume.go, end.go;
//   - the interpreter, which runs a fiber step by step: run.go, outcome.go;
//   - the beginning and the end of it all: start.go, close.go;
//   - looking at it: definition.go, debug.go, metrics.go.
package flow
