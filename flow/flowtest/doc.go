// Package flowtest tests flows: Explore runs code on thousands of interleavings, each chosen by a seed; Monitor checks
// what the engine promises on each of them; Crash stops a flow at every boundary between steps and positions, restarts
// it, and asks the test whether the outcome is right; a Trace also compares what the steps see with a run without a
// crash.
//
// All of it runs in bubbles of testing/synctest: time is fake, and a schedule takes microseconds.
package flowtest
