// Package real holds tests of package reconcile against a real control plane.
package real
