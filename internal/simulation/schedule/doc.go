// Package schedule plays one schedule: the steps of a workload beside a subject, with the faults of a plan. It records
// the course. A driver brings the API server and starts the processes of the subject: package bubble in virtual time,
// package live in real time.
//
//   - run.go: Run, what a driver and the steps use. It waits until the system is quiet.
//   - kinds.go: kinds finds resources by the names that a workload gives them.
//   - steps.go: the steps of a workload. files.go: reads YAML. No state.
//   - request.go: which object and verb a request is about. No state.
//   - recorder.go: recorder keeps the objects, the trace, and who writes at present. Its lock also guards faults.go.
//   - faults.go: injector holds the faults of the plan that have not happened yet. The recorder's lock guards it.
//   - gate.go: gates hold the watches that are late.
//   - transport.go: transport sends the requests of one process, with the faults.
//   - subject.go: Subject starts, kills and restarts the processes of the subject. process.go: Process, one of them.
//   - outside.go: services outside the cluster.
//   - coverage.go: coverage collects what a search does not cover.
//
// # Moments
//
// Each write waits a time before it is sent, and another one before its answer is delivered. Both follow from the seed
// and from the moment of the write. So in virtual time no two writes happen at the same time, and the same seed leads
// to the same run, however the Go scheduler orders goroutines. Reads never wait.
package schedule
