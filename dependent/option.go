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

// Option tunes a node.
type Option struct{ apply func(n *node) }

// Dependency is a node that others may come after: what [Add], [AddSet] and [AddExternal] return.
type Dependency interface{ of() *node }

// After has the children of a node created when those of others are there and [Ready], and deleted before those are. A
// node is not wanted while one that it comes after is not. A child that exists is kept as it should be also while
// others are not ready.
func After(others ...Dependency) Option {
	return Option{func(n *node) { n.comesAfter(others) }}
}

func (n *node) comesAfter(others []Dependency) {
	for _, o := range others {
		if v := reflect.ValueOf(o); !v.IsValid() || v.IsNil() {
			n.fault("it comes after a node that is nil")
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

// If says for which primaries the children of a node are wanted. Where they are not, they are deleted, if they are
// ours, and so are those of nodes that come after it.
func If[T any](wanted func(obj *T) bool) Option {
	return condition(wanted == nil, func(_ context.Context, obj *T) (bool, error) { return wanted(obj), nil })
}

// When is [If] with a function that may look further, such as into the cache, and may fail: then nothing is changed.
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

// Ready says when a child is ready: nodes that come after it wait for that, and so does the condition Ready of a
// primary. The object is READ-ONLY. Default: as soon as it exists. [IsReady] knows what is ready of many kinds.
func Ready[C any](is func(child *C) bool) Option {
	return judgement(is, "Ready", func(n *node) *func(any) bool { return &n.ready })
}

// Deleted says when a child that is being deleted counts as deleted, so that those that it comes after may be deleted,
// too. The object is READ-ONLY. Default: when it is gone.
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

// Timeout is after how long a child that is not ready is told as failed ([ErrNotReady]). It is waited for all the same.
// The time counts from the creation of a child that was never changed since, else from when it was first seen not to be
// ready. No limit by default.
func Timeout(d time.Duration) Option {
	return Option{func(n *node) {
		if n.timeout = d; d <= 0 {
			n.fault("a timeout of %v", d)
		}
	}}
}

// Adopt takes over an object that has the name of a child already, with what others have set in it. Default: it is told
// ([ErrForeign]) and left as it is. One that another controller owns is never taken over.
func Adopt() Option { return Option{func(n *node) { n.adopt = true }} }

// Elsewhere lets children be where no owner reference to the primary can be: in another namespace, or in none. They are
// found by their label fairlead.io/owner and deleted by the finalizer of the controller, since the garbage collector does
// not know them.
func Elsewhere() Option { return Option{func(n *node) { n.elsewhere = true }} }

// NoForce has a child fail where another manager owns a field that is desired. Default: the field is taken.
func NoForce() Option { return Option{func(n *node) { n.noForce = true }} }

// Recreate has a child whose change the API server refuses be deleted, and created anew when it is gone. It is not, if
// the API server would not take the new one either. Default: it is told ([ErrImmutable]).
func Recreate() Option { return Option{func(n *node) { n.recreate = true }} }

// Kind says which kind the children are, of nodes of unstructured.Unstructured.
func Kind(gvk schema.GroupVersionKind) Option { return Option{func(n *node) { n.kind = gvk }} }

// Labels has the node know only the objects of its kind that these labels select, such as "app=web": then no others are
// watched and held, and reads of others are requests. All that the node desires has to have them. Default:
// all objects of the kind are watched, so that reads of them are answered by the cache.
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

// Watch tunes the watch of the children, for instance with reconcile.IfChanged. [Labels] restricts it.
func Watch(opts ...reconcile.WatchOption) Option {
	return Option{func(n *node) { n.watch = append(n.watch, opts...) }}
}

func (n *node) fault(format string, args ...any) {
	n.errs = append(n.errs, fmt.Errorf(format, args...))
}

// After has a node that exists come after others, too: for nodes that are declared in a loop.
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
