package apiserver

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// Change is one write, for Options.OnChange. The objects are shared and must not be modified.
type Change struct {
	Resource Resource
	Revision uint64
	// Old is the object before, nil if it was created. New is the object after, nil if it was removed.
	Old, New *unstructured.Unstructured
}

// change describes a write. An object whose content cannot be decoded is nil.
func (t *table) change(r *revision) Change {
	c := Change{Resource: t.res, Revision: r.rev}
	if r.prev != nil {
		c.Old = r.prev.shared()
	}
	if r.typ != watch.Deleted {
		c.New = r.cur.shared()
	}
	return c
}

// shared returns the content without a copy.
func (o *object) shared() *unstructured.Unstructured {
	m, err := o.read()
	if err != nil {
		return nil
	}
	return &unstructured.Unstructured{Object: m}
}
