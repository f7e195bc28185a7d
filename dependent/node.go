package dependent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Node is a node of a graph, with children of type C.
type Node[C any] struct{ node *node }

// node is a Node without its type parameter.
type node struct {
	name  string
	at    string // place of the declaration
	graph any    // the *Graph that it belongs to
	index int    // in the order of creation

	primary, child reflect.Type
	kind           schema.GroupVersionKind

	after     []*node
	before    []*node // the nodes that come after it
	wanted    []func(ctx context.Context, obj any) (bool, error)
	ready     func(child any) bool
	deleted   func(child any) bool
	timeout   time.Duration
	adopt     bool
	noForce   bool
	recreate  bool
	many      bool // added by AddSet
	optional  bool // see Optional
	elsewhere bool // its children may be where no owner reference is possible
	watch     []reconcile.WatchOption
	labels    labels.Selector // selects the watched objects; nil: all
	errs      []error

	prototype client.Object // an empty object of type C
	desired   func(ctx context.Context, obj any) ([]client.Object, error)
	get       func(ctx context.Context, c *client.Client, k client.Key) (client.Object, error)
	list      func(ctx context.Context, c *client.Client, opts ...client.ReadOption) ([]client.Object, error)
	watches   func(n *node) []reconcile.Option
	watched   []reconcile.Option // the result of watches
	external  *external
}

// Add adds a node with one child for each primary. The controller applies the object that desired returns, and its
// field manager then owns exactly the fields in it. desired must build the object from scratch, from obj and the
// children of earlier nodes ([Node.Child]). obj is READ-ONLY. If the child has no namespace, it gets that of the
// primary. The graph sets the owner. A status in the object is ignored.
//
// C may be unstructured.Unstructured, with [Kind].
func Add[T, C any, PC client.ObjectOf[C]](
	g *Graph[T], name string, desired func(ctx context.Context, obj *T) (*C, error), opts ...Option,
) *Node[C] {
	n := newNode[T, C, PC](name)
	if desired == nil {
		n.fault("the function for the desired state is nil")
	} else {
		n.desired = objects[C, PC](desiredOf(desired))
	}
	add(g, n, opts)
	return &Node[C]{n}
}

// AddSet adds a node with any number of children for each primary, identified by their names. A child that is no longer
// desired is deleted. An error of desired changes nothing. Otherwise AddSet is like [Add].
func AddSet[T, C any, PC client.ObjectOf[C]](
	g *Graph[T], name string, desired func(ctx context.Context, obj *T) ([]*C, error), opts ...Option,
) *Node[C] {
	n := newNode[T, C, PC](name)
	n.many = true
	if desired == nil {
		n.fault("the function for the desired state is nil")
	} else {
		n.desired = objects[C, PC](func(ctx context.Context, obj any) ([]*C, error) {
			return desired(ctx, primaryOf[T](obj))
		})
	}
	add(g, n, opts)
	return &Node[C]{n}
}

func newNode[T, C any, PC client.ObjectOf[C]](name string) *node {
	n := &node{
		name: name, primary: reflect.TypeFor[T](), child: reflect.TypeFor[C](), prototype: PC(new(C)),
		ready: func(any) bool { return true },
		get: func(ctx context.Context, c *client.Client, k client.Key) (client.Object, error) {
			obj, err := client.Get[C, PC](ctx, c, k)
			return PC(obj), err
		},
		list: func(ctx context.Context, c *client.Client, opts ...client.ReadOption) (all []client.Object, err error) {
			for obj, err := range client.List[C, PC](ctx, c, opts...) {
				if err != nil {
					return nil, err
				}
				all = append(all, PC(obj))
			}
			return all, nil
		},
		watches: func(n *node) []reconcile.Option {
			opts := append([]reconcile.WatchOption{reconcile.Named(n.name)}, n.watch...)
			if !n.kind.Empty() {
				opts = append(opts, reconcile.Kind(n.kind))
			}
			all := []reconcile.Option{reconcile.Owns[C, PC](opts...)}
			if !n.elsewhere {
				return all
			}
			return append(all, reconcile.Watches[C, PC](primaryElsewhere[C, PC],
				append(opts[:len(opts):len(opts)], reconcile.Named(n.name+" elsewhere"), reconcile.Labeled(labelOwner))...))
		},
	}
	if _, generic := n.prototype.(runtime.Unstructured); generic {
		n.readGeneric()
	}
	return n
}

// readGeneric sets the functions that read unstructured children.
func (n *node) readGeneric() {
	n.get = func(ctx context.Context, c *client.Client, k client.Key) (client.Object, error) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(n.kind)
		return u, c.Get(ctx, k, u)
	}
	n.list = func(ctx context.Context, c *client.Client, opts ...client.ReadOption) (all []client.Object, err error) {
		var l unstructured.UnstructuredList
		l.SetGroupVersionKind(n.kind.GroupVersion().WithKind(n.kind.Kind + "List"))
		if err := c.List(ctx, &l, opts...); err != nil {
			return nil, err
		}
		for i := range l.Items {
			all = append(all, &l.Items[i])
		}
		return all, nil
	}
}

// objects adapts a function to return client.Objects.
func objects[C any, PC client.ObjectOf[C]](
	desired func(ctx context.Context, obj any) ([]*C, error),
) func(context.Context, any) ([]client.Object, error) {
	return func(ctx context.Context, obj any) ([]client.Object, error) {
		all, err := desired(ctx, obj)
		if err != nil {
			return nil, err
		}
		out := make([]client.Object, 0, len(all))
		for _, c := range all {
			if c == nil {
				return nil, errNothing
			}
			out = append(out, PC(c))
		}
		return out, nil
	}
}

// resolve sets the kind of the children, if it is not given.
func (n *node) resolve(c *client.Client) error {
	if n.external != nil {
		return nil
	}
	if n.kind.Empty() {
		switch n.prototype.(type) {
		case runtime.Unstructured, *metav1.PartialObjectMetadata:
			return fmt.Errorf("%w: node %q, %s, of %T needs its Kind", errInvalid, n.name, n.at, n.prototype)
		}
		kinds, _, err := c.Scheme().ObjectKinds(n.prototype)
		if err != nil {
			return fmt.Errorf("%w: node %q, %s: %w", errInvalid, n.name, n.at, err)
		}
		n.kind = kinds[0]
	}
	return nil
}

// isDeleted reports whether a child counts as deleted, by the option Deleted.
func (n *node) isDeleted(obj client.Object) bool {
	if obj.GetDeletionTimestamp() == nil || n.deleted == nil {
		return false
	}
	ok, err := guarded(func() (bool, error) { return n.deleted(obj), nil })
	return ok && err == nil
}

// fail returns a *ChildError for an error of an operation, or err if it is nil or has one already.
func (n *node) fail(op string, k client.Key, err error) error {
	var done *ChildError
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &ChildError{Node: n.name, Kind: n.kind, Key: k, Op: op, Err: err}
}

// unavailable returns why the kind of an optional node cannot be used, by the error of a list; "" if it is another
// error.
func (n *node) unavailable(err error) string {
	switch {
	case !n.optional:
	case meta.IsNoMatchError(err):
		return fmt.Sprintf("the API server does not serve %s", n.kind.GroupKind())
	case errors.Is(err, client.ErrNotWatched):
		return fmt.Sprintf("%s is not listed yet", n.kind.GroupKind())
	}
	return ""
}

// fresh returns an empty object of the type and kind of the children.
func (n *node) fresh() client.Object {
	obj := reflect.New(n.child).Interface().(client.Object)
	obj.GetObjectKind().SetGroupVersionKind(n.kind)
	return obj
}
