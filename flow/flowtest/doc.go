// Package flowtest tests flows: Explore runs code on thousands of interleavings, each chosen by a seed; Monitor checks
// what the engine promises on each of them; Crash stops a flow at every boundary between steps and positions, restarts
// it, and asks the test whether the outcome is right; a Trace also compares what the steps see with a run without a
// crash.
//
// All of it runs in bubbles of testing/synctest: time is fake, and a schedule takes microseconds.
//
// With the race detector, each schedule and each crash costs the process about 64 kB until it exits: Go 1.26 does not
// free the race context of a bubble's timers. A test of tens of thousands of them needs several processes.
package flowtest
