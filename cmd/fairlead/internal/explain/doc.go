// Package explain contains the commands that ask a running program about its state: fairlead why, flows and shards.
//
//   - remote.go: the address of a program, the credentials for it, and a request. No state.
//   - why.go: the question, and the replica that can answer it. print.go prints the answer, which is foreign text.
//   - flows.go: the live fibers.
//   - shards.go: the members of a group and their slots, read from the API server.
//
// A command runs once in one goroutine. There is no shared state and no lock.
package explain
