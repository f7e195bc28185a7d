// Package flowtest tests flows.
//
//   - [Explore] runs code on thousands of interleavings, each chosen by a seed.
//   - [Monitor] checks invariants F1 and F2 of package flow on each of them.
//   - [Crash] stops a flow at every boundary between steps and positions, restarts it, and lets the test check the
//     outcome. [Move] does the same with moves to another engine.
//   - [Trace] also compares what the steps see with a run without a crash.
//
// Every run is in a bubble of testing/synctest: time is fake, and a schedule takes microseconds.
//
// With the race detector, each schedule and each crash uses about 64 kB of memory until the process exits. The cause is
// that Go 1.26 does not free the race context of the timers of a bubble. A test with tens of thousands of schedules
// needs several processes.
package flowtest
