// Package deploytest builds deploy/ with kustomize and deploy/chart with helm as users do, holds what comes out to what the
// controller needs and to each other, and applies it to a real API server.
//
// It is a module of its own because kustomize and helm are needed by nobody else.
package deploytest
