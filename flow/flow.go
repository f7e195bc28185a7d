package flow

import (
	"context"
	"fmt"
)

// Flow is an immutable, validated list of named steps over a packet P. It is safe for concurrent use, runs any number
// of fibers on any number of engines, and is meant to be built once.
type Flow[P any] struct{ def *def }

// New builds a flow. What is wrong with it is told by Err, and by Start.
func New[P any](name string, nodes ...Node[P]) *Flow[P] {
	return &Flow[P]{def: compile(name, nodes)}
}

// compiled is the definition of the flow; of one that New has not made, one that cannot run.
func (fl *Flow[P]) compiled() *def {
	if fl == nil || fl.def == nil {
		return &def{err: fmt.Errorf("%w: it is nil, or was not made by New", ErrInvalid)}
	}
	return fl.def
}

// Name returns the name of the flow.
func (fl *Flow[P]) Name() string { return fl.compiled().name }

// Err returns what is wrong with the flow, all of it joined, each matching ErrInvalid; nil if it can run.
func (fl *Flow[P]) Err() error { return fl.compiled().err }

// Steps returns the paths of its steps, in order.
func (fl *Flow[P]) Steps() []string {
	d := fl.compiled()
	paths := make([]string, len(d.steps))
	for i := range d.steps {
		paths[i] = d.steps[i].path
	}
	return paths
}

// Undoes says whether Undo would have a step to run.
func (fl *Flow[P]) Undoes() bool {
	d := fl.compiled()
	return d.undo != nil && len(d.undo.steps) > 0
}

// Version returns a copy of the flow with this version. A position saved by another version is not resumed.
func (fl *Flow[P]) Version(v int) *Flow[P] {
	return &Flow[P]{def: fl.compiled().with(func(d *def) { d.version = v })}
}

// Provide returns a copy of the flow whose fibers find these values with Use.
func (fl *Flow[P]) Provide(values ...Provider) *Flow[P] {
	return &Flow[P]{def: fl.compiled().with(func(d *def) {
		d.providers = append(append([]Provider(nil), values...), d.providers...)
	})}
}

// Child makes a child of a fork that runs this flow over packet. The name is unique among the children of the fork; ""
// is the index. The packet belongs to the child until the fork is over.
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

// Step is one step.
func Step[P any](name string, fn StepFunc[P], opts ...Option) Node[P] {
	return Node[P]{kind: nodeStep, name: name, run: fn, set: settle(opts)}
}

// Detour is a step outside the line: it runs only when a step goes to it (Goto, Else, OnError), and on Next it returns
// to the step that did, which runs again. It is the place for "read again" after a conflict.
func Detour[P any](name string, fn StepFunc[P], opts ...Option) Node[P] {
	return Node[P]{kind: nodeDetour, name: name, run: fn, set: settle(opts)}
}

// Group names a part of the flow. Its steps have paths such as "group/step"; names are looked up in the group first,
// then outwards. Going to a group is going to its first step.
func Group[P any](name string, nodes ...Node[P]) Node[P] {
	return Node[P]{kind: nodeGroup, name: name, nodes: nodes}
}

// Inline makes a group of the steps of another flow over the same packet, under that flow's name. Since a flow is
// complete before another one can use it, flows cannot contain each other.
func Inline[P any](fl *Flow[P]) Node[P] {
	if fl == nil || fl.def == nil {
		return Node[P]{kind: nodeGroup, err: fmt.Errorf("%w: inlined flow is nil", ErrInvalid)}
	}
	return Node[P]{kind: nodeGroup, name: fl.def.name, nodes: fl.def.nodes.([]Node[P]), err: fl.def.err}
}

// Fork is a step that runs children, each a fiber of its own, and goes on when they have ended (by default all of them;
// see FailFast, Quorum, First, Limit). children may return none. An error of a child fails the step with a *ForkError.
// Undoing a fork undoes its children, found by calling children again.
func Fork[P any](name string, children func(ctx context.Context, f *Fiber[P]) ([]Child, error),
	opts ...Option,
) Node[P] {
	return Node[P]{kind: nodeFork, name: name, kids: children, set: settle(opts)}
}
