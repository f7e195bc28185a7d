package dependent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Graph declares the children of each object of a kind, its primaries. Create it with [For], add nodes, and declare it
// with [Graph.Controller]. It must not be changed after that. Before that it is not safe for concurrent use.
type Graph[T any] struct {
	nodes    []*node
	status   func(obj *T, r *Report)
	engine   *flow.Engine
	limit    int
	declared string // places of the declarations of its controller; "" before that
	errs     []error
	late     []error // mistakes after the declaration of the controller
	declare  func(h reconcile.Host, name string, opts []reconcile.Option) *reconcile.Controller
}

// For returns an empty graph for objects of type T, which must not be unstructured.
//
// It is not inlined, since its closure would then have the name of a function of the caller. The closure would count as
// the place of the declaration, see place.Outside.
//
//go:noinline
func For[T any, PT client.ObjectOf[T]]() *Graph[T] {
	g := &Graph[T]{limit: defaultLimit}
	g.declare = func(h reconcile.Host, name string, opts []reconcile.Option) *reconcile.Controller {
		return newController[T, PT](g, h, name, opts)
	}
	return g
}

// defaultLimit is the default of [Graph.Limit].
const defaultLimit = 8

// Status sets the function that reports the children in the status of a primary. The controller writes the status once
// in each round, and only if it has changed. obj is a copy of the freshest state. fn may run several times and must
// change only the status.
func (g *Graph[T]) Status(fn func(obj *T, r *Report)) *Graph[T] {
	if g != nil {
		g.status = fn
	}
	return g
}

// Engine sets the engine that runs the fibers. The caller closes it after the host has stopped. The default is the
// engine of the runtime.
func (g *Graph[T]) Engine(e *flow.Engine) *Graph[T] {
	if g != nil {
		g.engine = e
	}
	return g
}

// Limit sets how many children of one primary are written concurrently; the default is 8.
func (g *Graph[T]) Limit(n int) *Graph[T] {
	if g != nil {
		g.limit = n
	}
	return g
}

// Controller declares the controller of the graph. It watches the primaries and the children, and runs a fiber for each
// primary with pending work. It needs the permissions for that, see rights.Right. The Run of the runtime returns its
// errors and those of the graph.
//
// The name is part of the marks of children and of the finalizer, so it must not change. The options are those of any
// controller. Use [reconcile.Owns] and [reconcile.Watches] for other objects that the functions of nodes read.
func (g *Graph[T]) Controller(h reconcile.Host, name string, opts ...reconcile.Option) *reconcile.Controller {
	if h == nil {
		return nil
	}
	at := declaredAt()
	if g == nil || g.declare == nil {
		reportMistakes(h, name, func() error {
			return fmt.Errorf("%s: cannot run controller %q: %w: it is nil, or dependent.For did not return it",
				at, name, errInvalid)
		})
		return nil
	}
	g.fault(g.check(name, at))
	if g.declared == "" {
		reportMistakes(h, name, func() error { return errors.Join(g.late...) })
		g.declared = at
	}
	return g.declare(h, name, opts)
}

// declaredAt returns the place of the call of a declaration.
func declaredAt() string { return place.Outside("github.com/fairlead-io/fairlead/dependent") }

// reportMistakes makes the Run of a host return the error of fn.
func reportMistakes(h reconcile.Host, name string, fn func() error) {
	if checker, ok := h.(reconcile.Checker); ok {
		checker.Check(fn)
		return
	}
	h.Add("graph "+name, func(context.Context) error { return fn() })
}

// Err returns the errors of the graph. [Graph.Controller] passes them to its host.
func (g *Graph[T]) Err() error {
	if g == nil {
		return fmt.Errorf("%w: it is nil", errInvalid)
	}
	return errors.Join(g.errs...)
}

func (g *Graph[T]) fault(err error) {
	if err != nil {
		g.errs = append(g.errs, err)
	}
}

// check sorts the nodes so that each comes after its dependencies, and returns the errors of a declaration at a place.
func (g *Graph[T]) check(name, at string) error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w %q: %s", errInvalid, name, fmt.Sprintf(format, args...)))
	}
	if g.declared != "" {
		fault("it is declared twice, %s and %s", g.declared, at)
	}
	if len(g.nodes) == 0 {
		fault("it has no node")
	}
	if g.limit <= 0 {
		fault("a limit of %d children at a time", g.limit)
	}
	names := map[string]*node{}
	for _, n := range g.nodes {
		if other := names[n.name]; other != nil {
			fault("two nodes have the name %q, %s and %s", n.name, other.at, n.at)
		}
		names[n.name] = n
		for _, why := range validation.IsDNS1123Label(n.name) {
			fault("the name of node %q, %s: %s", n.name, n.at, why)
		}
		for _, err := range n.errs {
			fault("node %q, %s: %v", n.name, n.at, err)
		}
		for _, a := range n.after {
			if a.graph != n.graph {
				fault("node %q, %s, comes after node %q of another graph, %s", n.name, n.at, a.name, a.at)
			}
		}
	}
	sorted, cycle := sort(g.nodes)
	if cycle != nil {
		var names, places []string
		for _, n := range cycle {
			names, places = append(names, n.name), append(places, n.at)
		}
		fault("these nodes depend on each other in a cycle: %s, declared at %s", strings.Join(names, ", "),
			strings.Join(places, ", "))
		return errors.Join(errs...)
	}
	g.nodes = sorted
	for i, n := range g.nodes {
		n.index = i
		for _, a := range n.after {
			a.before = append(a.before, n)
		}
	}
	return errors.Join(errs...)
}

// sort sorts nodes after their dependencies and keeps the order otherwise. It returns a cycle if there is one.
func sort(nodes []*node) (sorted, cycle []*node) {
	const visiting, visited = 1, 2
	state := map[*node]int{}
	var way []*node
	var visit func(n *node) bool
	visit = func(n *node) bool {
		switch state[n] {
		case visited:
			return true
		case visiting:
			cycle = slices.Clone(way[slices.Index(way, n):])
			return false
		}
		state[n] = visiting
		way = append(way, n)
		for _, a := range n.after {
			if a.graph == n.graph && !visit(a) {
				return false
			}
		}
		way = way[:len(way)-1]
		state[n] = visited
		sorted = append(sorted, n)
		return true
	}
	for _, n := range nodes {
		if !visit(n) {
			return nil, cycle
		}
	}
	return sorted, nil
}

// add applies the options to a node and adds it.
func add[T any](g *Graph[T], n *node, opts []Option) {
	n.at = declaredAt()
	if g == nil {
		return
	}
	n.graph = g
	for _, o := range opts {
		if o.apply != nil {
			o.apply(n)
		}
	}
	if g.declared != "" {
		err := fmt.Errorf("%w: node %q, %s, was added after its controller was declared at %s", errInvalid, n.name, n.at,
			g.declared)
		g.errs, g.late = append(g.errs, err), append(g.late, err)
		return
	}
	if n.watches != nil {
		n.watched = n.watches(n)
	}
	g.nodes = append(g.nodes, n)
}

// primaryOf returns a primary with its type. It panics if obj has another type.
func primaryOf[T any](obj any) *T { return obj.(*T) }

// desiredOf adapts a function that returns one child to a function that returns a list.
func desiredOf[T, C any](fn func(ctx context.Context, obj *T) (*C, error)) func(context.Context, any) ([]*C, error) {
	return func(ctx context.Context, obj any) ([]*C, error) {
		c, err := fn(ctx, primaryOf[T](obj))
		return []*C{c}, err
	}
}
