// Package bubble plays schedules in a bubble of testing/synctest: a model API server, stand-ins for the controllers of
// Kubernetes, and the subject, a Go function. Time is virtual.
//
//   - play.go: Play, the wiring of one run. It owns no state.
//   - builtin.go: kinds without defaults and rules, and what else the model does not have.
package bubble
