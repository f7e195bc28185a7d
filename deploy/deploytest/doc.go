// Package deploytest builds deploy/ with kustomize as users do, and holds what comes out to what the controller needs.
//
// It is a module of its own because kustomize is needed by nobody else.
package deploytest
