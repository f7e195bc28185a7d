package dependent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/reconcile"
)

// newWant returns a desired child with its namespace and marks. It refuses fields that only the API server sets.
func newWant(m *marks, mapper meta.RESTMapper, n *node, desired client.Object) (*want, error) {
	obj := desired.DeepCopyObject().(client.Object) // the function may keep its own object
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk != n.kind && gvk != (schema.GroupVersionKind{}) {
		return nil, fmt.Errorf("%w: it is of kind %v, and the node is of %v", errUnfit, gvk, n.kind)
	}
	if obj.GetName() == "" {
		return nil, fmt.Errorf("%w: it has no name", errUnfit)
	}
	if v := obj.GetResourceVersion(); v != "" || obj.GetUID() != "" {
		return nil, fmt.Errorf(
			"%w: it was read from the API server; build a new object with the desired fields only", errUnfit)
	}
	if err := setNamespace(obj, mapper, n.kind, m.primary.GetNamespace()); err != nil {
		return nil, err
	}
	if !m.holds(obj) && !n.elsewhere {
		return nil, fmt.Errorf("%w: it is outside of the namespace %s of its owner; use the option Elsewhere", errUnfit,
			m.primary.GetNamespace())
	}
	if err := m.set(n, obj); err != nil {
		return nil, err
	}
	if n.labels != nil && !n.labels.Matches(labels.Set(obj.GetLabels())) {
		return nil, fmt.Errorf("%w: it lacks the labels of its node, %s", errUnfit, n.labels)
	}
	obj.GetObjectKind().SetGroupVersionKind(n.kind)
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %T: %w", obj, err)
	}
	return &want{key: client.KeyOf(obj), obj: obj, sum: sumOfJSON(data)}, nil
}

// content returns the desired object as it is applied. It is computed on first use, since most looks do not need it.
func (w *want) content() (map[string]any, error) {
	if w.fields == nil {
		m, err := content(w.obj)
		if err != nil {
			return nil, err
		}
		if _, generic := w.obj.(runtime.Unstructured); !generic {
			delete(m, "status") // Go types encode an empty status
		}
		w.fields = m
	}
	return w.fields, nil
}

// setNamespace sets the namespace of a child to that of its primary, if it has none.
func setNamespace(obj client.Object, mapper meta.RESTMapper, kind schema.GroupVersionKind, namespace string) error {
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	switch {
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		obj.SetNamespace("")
	case obj.GetNamespace() == "":
		obj.SetNamespace(namespace)
	}
	if obj.GetNamespace() == "" && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return fmt.Errorf("%w: neither it nor its owner has a namespace", errUnfit)
	}
	return nil
}

// guarded calls a function of the user and turns its panic into an error.
func guarded[R any](fn func() (R, error)) (res R, err error) {
	if p := protect.Call(func() { res, err = fn() }); p != nil {
		return res, &reconcile.PanicError{Value: p.Value, Stack: p.Stack}
	}
	return res, err
}

// states are the nodes of one round, in the order of their declaration.
type states []*state

// of returns the state of a node.
func (all states) of(n *node) *state { return all[n.index] }

// named returns the state of the node with a name, which must exist.
func (all states) named(name string) *state {
	return all[slices.IndexFunc(all, func(s *state) bool { return s.name == name })]
}

type statesKey struct{}

// withStates returns a context for Node.Child and Node.Children.
func withStates(ctx context.Context, all states) context.Context {
	return context.WithValue(ctx, statesKey{}, all)
}

// Child returns the child of a node in this round, for functions of nodes that come after it. It is nil while the child
// does not exist. Functions of nodes that come after an unknown child are not called. The child is READ-ONLY. For a
// set, Child returns the first one; see [Node.Children].
func (n *Node[C]) Child(ctx context.Context) *C {
	for _, c := range n.Children(ctx) {
		return c
	}
	return nil
}

// Children returns the children of a node in this round. They are READ-ONLY.
func (n *Node[C]) Children(ctx context.Context) []*C {
	s, _ := ctx.Value(statesKey{}).(states)
	return childrenOf(s, n)
}

func childrenOf[C any](in states, n *Node[C]) (all []*C) {
	if in == nil || n.of() == nil {
		return nil
	}
	s := in.of(n.node)
	if s.external != nil {
		if o := s.outside; o != nil {
			if is, ok := o.is.(*C); ok && is != nil {
				all = append(all, is)
			}
		}
		return all
	}
	for _, w := range s.wants {
		if c, ok := w.is.(any).(*C); ok && c != nil {
			all = append(all, c)
		}
	}
	return all
}
