// Package flow runs long-lived work as a series of named steps. A [Flow] lists the steps. A fiber is one run of a flow
// over a packet, which is a struct of the caller. An [Engine] runs fibers, at most one per key. A fiber that waits is
// parked: it keeps a small record and holds no goroutine. The package does not depend on Kubernetes.
//
// # A flow
//
// A [Flow] is an immutable list of steps. A step is a Go function that may block briefly. Its result says what the
// fiber does next:
//
//	bringUp := flow.New[Domain]("bring-up",
//		flow.Step("admin-server", flow.Do(startAdmin)),        // func(ctx, *Domain) error
//		flow.Step("wait-ready", func(ctx context.Context, f *flow.Fiber[Domain]) flow.Next {
//			return f.Await(podReady(f.Packet.Admin), flow.Timeout(5*time.Minute))
//		}),
//		flow.Fork("managed-servers", eachServer, flow.Limit(8)),
//	)
//
// [New] collects the faults of a flow in [Flow.Err]: no step, a duplicate name, an unknown target, a cycle of error
// handlers. [Flow.Start] refuses a flow with faults. A flow can therefore be a package-level variable.
//
// A step returns one of these:
//
//   - Next goes to the following step.
//   - Goto goes to another step. A [Detour] returns to the step that went there.
//   - Delay waits, then goes to the following step.
//   - Retry waits, then runs the same step again.
//   - Suspend waits until a [Token] is resumed.
//   - Await waits until one of several [Wait] conditions holds.
//   - Fork runs children and waits for them.
//   - Yield lets other fibers run, then goes to the following step.
//   - End completes the fiber.
//   - Fail fails the step.
//
// [Next.Then] names the step that follows a wait. [Next.Else] names the step that follows an error. The options of a
// step are [Retry], [OnError], [Deadline], [Done], [Save], [Undo] and [To].
//
// # A fiber
//
// An [Engine] runs fibers on a bounded number of workers. Groups of fibers take turns, and the subgroups of a group
// take turns within it. The default group is the part of the key before the first slash, which is the namespace.
//
//	engine := flow.NewEngine(flow.EngineOptions{Workers: 32})
//	defer engine.Close(context.Background())
//	h, err := bringUp.Start(ctx, engine, &domain, flow.StartOptions{Key: "prod/orders", OnEnd: report})
//
// A step that waits for the response to a request of package call or client does not count as one of the workers, and
// another fiber may begin meanwhile. EngineOptions.Requests bounds these steps. [Blocking] does the same for other
// clients, and has the contract.
//
// A parked fiber (delay, retry, suspension, await, fork) is a record of a few hundred bytes. It has no goroutine, no
// runtime timer and no context. The context of a step therefore ends when the fiber parks or ends. A [Fiber.Suspend]
// keeps the context until the fiber is resumed. Cancellation, preemption and [Engine.Close] cancel the context with
// their cause.
//
// # One fiber per key
//
// A fiber with a key passes the gate of that key. The [Mode] says what Start does while another fiber of the key is
// alive. [Preempt] cancels that fiber and waits until its code, its children and its callback have returned. [Coalesce]
// waits for it to finish. [SkipIfBusy] starts nothing.
//
// The callback of a failed fiber may start failure steps with StartOptions.IfCurrent. Such a start is refused if a
// newer fiber of the key exists. Each fiber has an epoch, which is higher than that of every earlier fiber of the key.
// [Fenced] tells a client that has the context of a fiber whether the fiber may still write.
//
// # After a restart
//
// With [Positions] the engine saves the position of a fiber: when it parks, before a step with [Save], before the first
// run of a step with [Undo], and at the end. A fiber that starts after a restart resumes at the saved step. Its
// deadlines keep counting.
//
// The position is a hint and not the source of truth. A fiber starts from the first step if the saved step is unknown,
// or if the version or the generation differs. With [Done] a step reports that its effect exists already.
//
// # Observability
//
// Every error has the path of its step ("bring-up/managed-servers[3]/wait-ready: …"). Every fiber keeps a short trail
// of the steps that it ran last. [Engine.Fibers] and [Engine.Stuck] list live fibers. [Engine.DebugHandler] serves them
// at /debug/flows. [Engine.Collector] returns the metrics. [EngineOptions] turns on spans and pprof labels.
//
// # Testing
//
// An engine works in a bubble of testing/synctest. Package flowtest explores interleavings by seed and checks F1 and F2
// on each. It also crashes a flow at every boundary.
//
// # Invariants
//
// F1: at most one fiber per key runs. A successor starts after its predecessor's code has returned.
//
// F2: a fiber ends exactly once: completed, failed, cancelled or moved. Its callback always runs.
//
// The engine holds no lock while user code runs. A panic of user code fails its fiber, with the stack, and affects no
// other fiber. After Close the engine has no goroutine and no timer.
//
// # Parts
//
// An [Engine] (engine.go) connects the following parts. No part reads the fields of another one. The invariants F1 and
// F2 span several parts, so there is one lock, core.mu. Parts without a lock of their own are data of their owner,
// which holds core.mu during each call.
//
//   - fiber (record.go): the record of a fiber. Each part names the fields that are its entries in the record, and
//     only that part writes them. Other parts may read the status. suspend.go clears the events that it has handled.
//     progress has the current step and the history; its lock, progress.mu, is a leaf.
//   - scheduler (scheduler.go): the status of fibers, and the workers. It owns the queue of ready fibers
//     (ready.go) and the times at which fibers are due (timers.go). It calls the interpreter through a function.
//   - gates (gates.go): the chain of fibers of each key. liveSet (live.go): all live fibers. registry (registry.go):
//     the flows in use and their metrics. All three are data of lifecycle.
//   - lifecycle (lifecycle.go, end.go, host.go): starts and ends fibers, and keeps F1 and F2. It takes core.mu.
//   - interpreter (run.go, outcome.go): turns results of steps into moves. It has no state, and takes no lock for
//     others: it asks the interfaces host, which lifecycle implements, and saves, which journal implements. line.go,
//     suspend.go, notes.go and stepcontext.go have its functions on the record.
//   - awaiting (await.go): the waits of one await, and when they are checked. It belongs to the worker of the fiber.
//   - journal (journal.go, restore.go): the saves of one fiber, for the worker that runs it. snapshot.go makes a
//     position from a fiber, and resume.go plans how a position continues. Both are pure.
//   - forkPolicy (forkpolicy.go): which child of a fork starts next, and when the fork ends. Pure.
//   - fiberSpans (spans.go): the spans of fibers and steps. Its data is guarded by core.mu.
//   - inspection (inspect.go, with info.go, why.go, whytext.go, blocked.go, stuck.go, debug.go, metrics.go): takes
//     snapshots under core.mu, and evaluates them without it.
//   - the API of steps (fiber.go) and of other code (handle.go, wake.go); the definition of a flow (flow.go,
//     option.go, compile.go, def.go, next.go), which does not change.
//
// Locks: progress.mu may be taken while core.mu is held. No lock is held while user code runs.
package flow
