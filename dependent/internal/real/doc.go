// Package real tests package dependent against a real kube-apiserver.
package real
