package dependent

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Option configures a node.
type Option struct{ apply func(n *node) }

// Dependency is a node for [After], as returned by [Add], [AddSet] and [AddExternal].
type Dependency interface{ of() *node }

// After makes a node come after others. Its children are created when those of the others exist and are [Ready], and
// are deleted before those are. The node is not wanted if one of the others is not. An existing child is kept up to
// date even while the others are not ready.
func After(others ...Dependency) Option {
	return Option{func(n *node) { n.comesAfter(others) }}
}

func (n *node) comesAfter(others []Dependency) {
	for _, o := range others {
		if v := reflect.ValueOf(o); !v.IsValid() || v.IsNil() {
			n.fault("After was given a nil node")
			continue
		}
		switch other := o.of(); {
		case other == nil:
			n.fault("it comes after a node that is nothing")
		case !slices.Contains(n.after, other):
			n.after = append(n.after, other)
		}
	}
}

// If selects the primaries for which the children of a node are wanted. For other primaries the children of the node
// are deleted, and so are those of the nodes that come after it.
func If[T any](wanted func(obj *T) bool) Option {
	return condition(wanted == nil, func(_ context.Context, obj *T) (bool, error) { return wanted(obj), nil })
}

// When is like [If], for a function that may read other objects and may fail. After an error nothing is changed.
func When[T any](wanted func(ctx context.Context, obj *T) (bool, error)) Option {
	return condition(wanted == nil, wanted)
}

func condition[T any](missing bool, wanted func(ctx context.Context, obj *T) (bool, error)) Option {
	return Option{func(n *node) {
		if missing {
			n.fault("the function of If is nil")
			return
		}
		if t := reflect.TypeFor[T](); t != n.primary {
			n.fault("the function of If takes %v, and the primaries are %v", t, n.primary)
			return
		}
		n.wanted = append(n.wanted, func(ctx context.Context, obj any) (bool, error) { return wanted(ctx, obj.(*T)) })
	}}
}

// Ready sets the function that reports whether a child is ready. Nodes that come after it, and the condition Ready of
// the primary, depend on it. The child is READ-ONLY. By default a child is ready as soon as it exists. [IsReady]
// handles many kinds.
func Ready[C any](is func(child *C) bool) Option {
	return judgement(is, "Ready", func(n *node) *func(any) bool { return &n.ready })
}

// Deleted sets the function that reports whether a child that is being deleted counts as deleted. The nodes before it
// may then be deleted. The child is READ-ONLY. By default a child counts as deleted when it is gone.
func Deleted[C any](is func(child *C) bool) Option {
	return judgement(is, "Deleted", func(n *node) *func(any) bool { return &n.deleted })
}

func judgement[C any](is func(child *C) bool, name string, field func(n *node) *func(any) bool) Option {
	return Option{func(n *node) {
		if is == nil {
			n.fault("the function of %s is nil", name)
			return
		}
		if t := reflect.TypeFor[C](); t != n.child {
			n.fault("the function of %s takes %v, and the children are %v", name, t, n.child)
			return
		}
		*field(n) = func(child any) bool { return is(child.(*C)) }
	}}
}

// Timeout sets after how long a child that is not ready is reported as failed ([ErrNotReady]). The node continues to
// wait. If the child has not changed since its creation, the time counts from its creation. Otherwise it counts from
// when the child was first seen not ready. For a node of [AddExternal] it counts from when this process first read the
// resource as not ready. By default there is no limit.
func Timeout(d time.Duration) Option {
	return Option{func(n *node) {
		if n.timeout = d; d <= 0 {
			n.fault("a timeout of %v", d)
		}
	}}
}

// Adopt takes over an existing object that has the name of a child. Fields of other managers stay. By default the
// controller reports [ErrForeign] and does not write the object. An object that another controller owns is never
// adopted.
func Adopt() Option { return Option{func(n *node) { n.adopt = true }} }

// Elsewhere allows children where no owner reference to the primary is possible: in another namespace, or
// cluster-scoped. The controller finds them by their label fairlead.io/owner. It deletes them with its finalizer, since
// the garbage collector does not.
func Elsewhere() Option { return Option{func(n *node) { n.elsewhere = true }} }

// NoForce makes the apply of a child fail if another manager owns a desired field. By default the apply takes the field
// over.
func NoForce() Option { return Option{func(n *node) { n.noForce = true }} }

// Recreate deletes a child whose change the API server refuses, and creates it again when it is gone. The child is not
// deleted if the API server would refuse the new one, too. By default the controller reports [ErrImmutable].
func Recreate() Option { return Option{func(n *node) { n.recreate = true }} }

// Optional allows that the API server does not serve the kind of a node, for example because its
// CustomResourceDefinition is not installed. The node is then left out: its state is [StateAbsent], and the primary
// does not wait for it. Nodes that come after it wait, and keep their children. When the kind is served, all primaries
// are examined again. By default the controller does not start without the kind.
func Optional() Option {
	return Option{func(n *node) {
		n.optional = true
		n.watch = append(n.watch, reconcile.Optional())
	}}
}

// Kind sets the kind of the children of a node of unstructured.Unstructured.
func Kind(gvk schema.GroupVersionKind) Option { return Option{func(n *node) { n.kind = gvk }} }

// Labels restricts a node to objects that the selector matches, such as "app=web". Only these are watched and cached,
// and reads of other objects of the kind are requests. All desired children must match. By default all objects of the
// kind are watched, and reads of them are answered by the cache.
func Labels(selector string) Option {
	return Option{func(n *node) {
		sel, err := labels.Parse(selector)
		if err != nil {
			n.fault("its labels: %v", err)
			return
		}
		n.labels = sel
		n.watch = append(n.watch, reconcile.From(cache.Labels(selector)))
	}}
}

// Watch configures the watch of the children, for example with reconcile.IfChanged. Use [Labels] to restrict it.
func Watch(opts ...reconcile.WatchOption) Option {
	return Option{func(n *node) { n.watch = append(n.watch, opts...) }}
}

func (n *node) fault(format string, args ...any) {
	n.errs = append(n.errs, fmt.Errorf(format, args...))
}

// After makes a node come after others, like the option [After]. It is for nodes that are declared in a loop.
func (n *Node[C]) After(others ...Dependency) *Node[C] {
	if n != nil && n.node != nil {
		n.node.comesAfter(others)
	}
	return n
}

func (n *Node[C]) of() *node {
	if n == nil {
		return nil
	}
	return n.node
}

var _ Dependency = (*Node[client.Key])(nil)
