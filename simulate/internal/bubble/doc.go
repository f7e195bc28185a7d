// Package bubble plays one schedule in a bubble of testing/synctest: a model API server, stand-ins for the controllers
// of Kubernetes, the subject, and the workload.
//
//   - play.go: Play, the wiring of one run, and the decision that the system is quiet.
//   - request.go: which object and verb a request is about. No state.
//   - recorder.go: recorder keeps the objects, the trace, and who writes at present. Its lock also guards faults.go.
//   - faults.go: injector holds the faults of the plan that have not happened yet. The recorder's lock guards it.
//   - gate.go: gates hold the watches that are late.
//   - transport.go: transport sends the requests of one process, with the faults.
//   - subject.go: subject starts, kills and restarts processes of the subject.
//   - outside.go: services outside the cluster.
//   - run.go: Run, what the steps of a workload use.
//
// # Moments
//
// Each write waits a virtual time before it is sent, and another one before its answer is delivered. Both follow from
// the seed and from the moment of the write. So no two writes happen at the same time, and the same seed leads to the
// same run, however the Go scheduler orders goroutines. Reads never wait.
package bubble
