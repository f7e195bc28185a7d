// Watchbench measures caches of Kubernetes objects side by side: Fairlead, client-go (typed, dynamic, metadata) and
// controller-runtime (typed, unstructured), and the bound: a program that only reads the bytes and keeps them.
//
//	go run ./watchbench                                  # everything; tables on stdout, progress on stderr
//	go run ./watchbench -o ../docs/benchmarks.md         # and into the page, between its markers, after each peer
//	go run ./watchbench -objects 5000 -rounds 1          # a look
//	go run ./watchbench -set adapter -buckets 500 # controller-runtime, stock and on our stores
//	go run ./watchbench -rows S3,S8 -peers 'fairlead, JSON;client-go dynamic'
//
// All of them list and watch the same objects of the same server, one after the other, round by round. The server
// (fairleadtest/apiserver) has every object encoded beforehand and runs in the process of watchbench; each peer runs in
// a child process of its own, so that its CPU time and memory are its own. Rounds are interleaved (A B C A B C), and
// medians are printed with minimum and maximum. S7 and LIST take part in the first round only, and so do S5 of slow
// peers and controller-runtime unstructured.
//
// The history of the server is forgotten as soon as it was sent, so that this process has 18 KB for each pod and
// widget, and little more. A child that would take the last 2 GiB of the machine's memory is ended, and so is one that
// takes longer than -limit for a row: the tables then say "out of memory at N GB" or "not within 4m0s", and the other
// peers go on.
//
// See -help for all flags. For most there is an environment variable that sets the default: BENCH_OBJECTS,
// BENCH_ROUNDS, BENCH_EVENTS, BENCH_RATE, BENCH_SECONDS, BENCH_BLOCKED, BENCH_PEERS, BENCH_PROFILE, BENCH_OUT.
package main
