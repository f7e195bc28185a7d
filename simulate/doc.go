// Package simulate finds the bugs of a Kubernetes controller that show only when something fails: a crash between two
// writes, a watch that is late, an answer that is lost. It runs any controller that a Go function can start, unchanged.
// No cluster is needed. Command runs a program instead, on a real control plane.
//
//	func TestFaults(t *testing.T) {
//		simulate.Test(t, simulate.Subject{
//			Start: func(ctx context.Context, cfg *rest.Config) error { … return mgr.Start(ctx) },
//			CRDs:  "config/crd/bases",
//		},
//			simulate.Apply("config/samples/web.yaml"),
//			simulate.AwaitCondition("webpages/web", "Ready"),
//			simulate.Delete("webpages/web"),
//			simulate.Gone("webpages/web"),
//		)
//	}
//
// Test plays the workload without faults, and then with each fault at each moment. A schedule that ends otherwise is a
// finding, if it repeats. The test fails with the schedule that leads to it. docs/guides/faults.md explains the faults,
// the verdicts and the report.
//
// # Guarantees
//
//   - Only faults are played that a conforming API server, network and kernel may show. Watches are late and never out
//     of order. A stored write is never undone.
//   - Time is virtual. The same seed leads to the same verdict: each write and its answer has a moment of its own.
//   - A finding was shown by at least 2 of 3 replays, and by none of 3 runs without a fault.
//   - What could not be judged is reported, and never counted as passed.
//
// # Parts
//
//   - simulate.go: Test and Subject. part.go: steps and options. world.go: World.
//   - internal/simulation/engine: decides which faults to play, and judges their outcomes.
//   - internal/simulation/schedule: plays one schedule, with any driver.
//   - internal/simulation/live: the driver for Command, on a real control plane.
//   - simulate/internal/bubble: the driver for Subject.Start, in virtual time.
//   - simulate/internal/worker: child processes that play schedules.
//   - simulate/internal/controllers: stand-ins for the controllers of Kubernetes.
package simulate
