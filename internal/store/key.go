package store

import "k8s.io/apimachinery/pkg/types"

// Key names one object of a store; Namespace is empty for a cluster-scoped one.
type Key struct{ Namespace, Name string }

// String returns "namespace/name", or "name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Label is one label of an object.
type Label struct{ Key, Value string }

// Owner is one owner reference of an object.
type Owner struct {
	UID                    types.UID
	APIVersion, Kind, Name string
	Controller             bool
}
