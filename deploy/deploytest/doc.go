// Package deploytest builds deploy/ with kustomize and deploy/chart with helm as users do. It checks the output
// against the needs of the controller, compares both outputs, and applies them to a real API server.
//
// It is a module of its own so that the library does not depend on kustomize and helm.
package deploytest
