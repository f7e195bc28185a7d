// Watchbench measures caches of Kubernetes objects side by side: Fairlead, client-go (typed, dynamic, metadata) and
// controller-runtime (typed, unstructured), and the bound: a program that only reads the bytes and keeps them.
//
//	go run ./watchbench            # tables on stdout
//	BENCH_OBJECTS=1000 BENCH_ROUNDS=1 go run ./watchbench
//
// All of them list and watch the same objects of the same server, one after the other, round by round. The server
// (fairleadtest/apiserver) has every object encoded beforehand and runs in the process of watchbench; each peer runs in a child
// process of its own, so that its CPU time and memory are its own. Rounds are interleaved (A B C A B C), and medians are
// printed with minimum and maximum.
//
// BENCH_OBJECTS (100000), BENCH_ROUNDS (3), BENCH_EVENTS (30000), BENCH_RATE (2000 events per second), BENCH_SECONDS (5, of
// that rate), BENCH_BLOCKED (100000 updates of 1000 keys), BENCH_PEERS (separated by semicolons; all), BENCH_PROFILE (a directory for
// CPU profiles of the first round), BENCH_OUT (a file that has the tables after each session, so that an interrupted run is not lost).
package main
