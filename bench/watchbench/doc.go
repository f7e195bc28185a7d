// Watchbench measures caches of Kubernetes objects side by side: Fairlead, client-go (typed, dynamic, metadata),
// controller-runtime (typed, unstructured), and a lower bound: a program that only reads the bytes and keeps them.
//
//	go run ./watchbench                                  # everything; tables on stdout, progress on stderr
//	go run ./watchbench -o ../docs/internals/benchmarks.md   # also updates the page after each peer
//	go run ./watchbench -objects 5000 -rounds 1          # a quick run
//	go run ./watchbench -set adapter -buckets 500        # controller-runtime, stock and on our stores
//	go run ./watchbench -rows S3,S8 -peers 'fairlead, JSON;client-go dynamic'
//
// All peers list and watch the same objects of the same server, one at a time. The server (fairleadtest/apiserver)
// has all objects encoded in advance and runs in the process of watchbench. Each peer runs in its own child process,
// so that CPU time and memory can be measured. Rounds are interleaved (A B C A B C), and the tables have medians with
// minimum and maximum. S4 (a minute), S7 and LIST run in the first round only, and so does S5 of slow peers and of
// controller-runtime unstructured.
//
// The server drops its history as soon as it was sent. The watchbench process therefore needs little more than 18 KB
// for each pod and widget. A child is ended if it would leave less than 2 GiB of the machine's memory, or if it takes
// longer than -limit for a row. The tables then say "out of memory at N GB" or "not within 4m0s", and the other peers
// are still measured.
//
// See -help for all flags. Most flags have an environment variable for the default: BENCH_OBJECTS, BENCH_ROUNDS,
// BENCH_EVENTS, BENCH_RATE, BENCH_SECONDS, BENCH_BLOCKED, BENCH_PEERS, BENCH_PROFILE, BENCH_OUT.
package main
