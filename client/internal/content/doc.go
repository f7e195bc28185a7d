// Package content compares and patches objects as JSON values. All its functions are pure.
//
// An object is a map as sigs.k8s.io/json decodes it. [Of] and [Decode] drop what only the server sets, so two contents
// are comparable.
package content
