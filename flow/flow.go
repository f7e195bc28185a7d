package flow

import (
	"context"
	"fmt"
)

// Flow is an immutable, validated list of named steps over a packet P. It is safe for concurrent use. It can run any
// number of fibers on any number of engines.
type Flow[P any] struct{ def *def }

// New builds a flow. Err and Start return the faults of the definition.
func New[P any](name string, nodes ...Node[P]) *Flow[P] {
	return &Flow[P]{def: compile(name, nodes)}
}

// compiled returns the definition of the flow. For a flow that New did not make, it returns a definition with an error.
func (fl *Flow[P]) compiled() *def {
	if fl == nil || fl.def == nil {
		return &def{err: fmt.Errorf("%w: it is nil, or was not made by New", ErrInvalid)}
	}
	return fl.def
}

// Name returns the name of the flow.
func (fl *Flow[P]) Name() string { return fl.compiled().name }

// Err returns the faults of the flow, joined, each matching ErrInvalid. It returns nil for a valid flow.
func (fl *Flow[P]) Err() error { return fl.compiled().err }

// Steps returns the paths of the steps, in order.
func (fl *Flow[P]) Steps() []string {
	d := fl.compiled()
	paths := make([]string, len(d.steps))
	for i := range d.steps {
		paths[i] = d.steps[i].path
	}
	return paths
}

// Undoes reports whether Undo has any step to run.
func (fl *Flow[P]) Undoes() bool {
	d := fl.compiled()
	return d.undo != nil && len(d.undo.steps) > 0
}

// Version returns a copy of the flow with version v. A fiber does not resume a position that another version saved.
func (fl *Flow[P]) Version(v int) *Flow[P] {
	return &Flow[P]{def: fl.compiled().with(func(d *def) { d.version = v })}
}

// Provide returns a copy of the flow whose fibers find the values with Use.
func (fl *Flow[P]) Provide(values ...Provider) *Flow[P] {
	return &Flow[P]{def: fl.compiled().with(func(d *def) {
		d.providers = append(append([]Provider(nil), values...), d.providers...)
	})}
}

// Child returns a child of a fork that runs this flow over packet. The name must be unique among the children of the
// fork. An empty name means the index of the child. The packet belongs to the child until the fork is over.
func (fl *Flow[P]) Child(name string, packet *P) Child {
	return Child{name: name, def: fl.compiled(), make: func() *fiber { return newFiber(packet) }}
}

// Node is a part of a flow: a step, a group, a detour, a fork or another flow over the same packet.
type Node[P any] struct {
	kind  nodeKind
	name  string
	run   StepFunc[P]
	kids  func(ctx context.Context, f *Fiber[P]) ([]Child, error)
	nodes []Node[P]
	set   settings
	err   error
}

type nodeKind uint8

const (
	nodeNone nodeKind = iota
	nodeStep
	nodeGroup
	nodeDetour
	nodeFork
)

// Step returns a node with one step.
func Step[P any](name string, fn StepFunc[P], opts ...Option) Node[P] {
	return Node[P]{kind: nodeStep, name: name, run: fn, set: settingsOf(opts)}
}

// Detour returns a step outside the line. It runs only when another step goes to it (Goto, Else, OnError). On Next it
// returns to that step, which runs again. A typical use is to read an object again after a conflict.
func Detour[P any](name string, fn StepFunc[P], opts ...Option) Node[P] {
	return Node[P]{kind: nodeDetour, name: name, run: fn, set: settingsOf(opts)}
}

// Group names a part of the flow. Its steps have paths such as "group/step". Names are looked up in the group first,
// then in the enclosing groups. Goto with the name of a group goes to its first step.
func Group[P any](name string, nodes ...Node[P]) Node[P] {
	return Node[P]{kind: nodeGroup, name: name, nodes: nodes}
}

// Inline returns a group of the steps of another flow over the same packet, under that flow's name. A flow is complete
// before another flow can inline it, so flows cannot contain each other.
func Inline[P any](fl *Flow[P]) Node[P] {
	if fl == nil || fl.def == nil {
		return Node[P]{kind: nodeGroup, err: fmt.Errorf("%w: inlined flow is nil", ErrInvalid)}
	}
	return Node[P]{kind: nodeGroup, name: fl.def.name, nodes: fl.def.nodes.([]Node[P]), err: fl.def.err}
}

// Fork returns a step that runs children, each as a fiber of its own. By default the step waits for all of them; see
// FailFast, Quorum, First and Limit. children may return none. An error of a child fails the step with a *ForkError.
// Undoing a fork calls children again and undoes the children that it returns.
func Fork[P any](name string, children func(ctx context.Context, f *Fiber[P]) ([]Child, error),
	opts ...Option,
) Node[P] {
	return Node[P]{kind: nodeFork, name: name, kids: children, set: settingsOf(opts)}
}
