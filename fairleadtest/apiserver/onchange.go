package apiserver

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// Change is one write, for Options.OnChange. The objects are shared and must not be modified. An object that cannot be
// decoded has only its kind and its identity.
type Change struct {
	Resource Resource
	Revision uint64                     // the revision of the write
	Old      *unstructured.Unstructured // the state before; nil if the write created the object
	New      *unstructured.Unstructured // the state after; nil if the write removed the object
}

// report calls onChange for a write. The caller holds the lock of the store.
func (st *store) report(r *revision) {
	if st.onChange == nil {
		return
	}
	c := Change{Resource: r.cur.table.res, Revision: r.rev, Old: r.prev.shared()}
	if r.typ != watch.Deleted {
		c.New = r.cur.shared()
	}
	st.onChange(c)
}

// shared returns the object without a copy of its content, or nil for nil.
func (o *object) shared() *unstructured.Unstructured {
	if o == nil {
		return nil
	}
	content, err := o.read()
	if err == nil {
		return &unstructured.Unstructured{Object: content}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.table.res.GVK())
	u.SetNamespace(o.namespace)
	u.SetName(o.name)
	return u
}
