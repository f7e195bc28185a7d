// Package simulate is the command simulate: it plays a workload on a controller's program with faults.
//
//   - simulate.go: NewCommand, flags and exit codes.
//   - workload.go: the file with the steps.
package simulate
