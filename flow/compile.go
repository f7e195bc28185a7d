package flow

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// compiler flattens nodes into a def.
type compiler[P any] struct {
	def   *def
	sets  []settings
	undos []func(context.Context, any) Next
	errs  []error
}

func compile[P any](name string, nodes []Node[P]) *def {
	c := &compiler[P]{def: &def{name: name, index: map[string]int32{}, nodes: nodes, first: none}}
	if why := badName(name); why != "" {
		c.fault("flow name %q %s", name, why)
	}
	c.add("", nodes)
	c.link()
	c.resolveTargets()
	c.buildUndo()
	if len(c.errs) > 0 {
		c.def.err = fmt.Errorf("cannot build flow %q: %w", name, errors.Join(c.errs...))
	}
	return c.def
}

func (c *compiler[P]) fault(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...))
}

func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case strings.ContainsAny(name, "/[]\n"):
		return "contains one of / [ ] or a line break"
	}
	return ""
}

func (c *compiler[P]) add(scope string, nodes []Node[P]) {
	for i, n := range nodes {
		if n.err != nil {
			c.errs = append(c.errs, n.err)
		}
		if n.kind == nodeNone {
			c.fault("node %d of %q is empty", i, c.def.name+"/"+scope)
			continue
		}
		if why := badName(n.name); why != "" {
			c.fault("step name %q %s", scope+n.name, why)
		}
		path := scope + n.name
		if _, dup := c.def.index[path]; dup {
			c.fault("duplicate name %q", path)
			continue
		}
		c.def.index[path] = int32(len(c.def.steps))
		if n.kind == nodeGroup {
			if len(n.nodes) == 0 {
				c.fault("group %q has no step", path)
			}
			c.add(path+"/", n.nodes)
			continue
		}
		c.addStep(path, n)
	}
}

func (c *compiler[P]) addStep(path string, n Node[P]) {
	s := step{
		path: path, save: n.set.save, retry: n.set.retry, deadline: n.set.deadline, next: none, onError: none,
		detour: n.kind == nodeDetour, fork: n.kind == nodeFork,
	}
	var undo func(context.Context, any) Next
	switch {
	case n.kind == nodeFork && n.kids == nil, n.kind != nodeFork && n.run == nil:
		c.fault("step %q has no function", path)
	case n.kind == nodeFork:
		each := eachChild[P](n.kids)
		s.run, undo = each.step(n.set.fork), each.undo(n.set.fork.limit)
	default:
		run := n.run
		s.run = func(ctx context.Context, f any) Next { return run(ctx, f.(*Fiber[P])) }
	}
	if n.set.forkOnly && n.kind != nodeFork {
		c.fault("step %q is no fork but has an option of forks", path)
	}
	if why := n.set.fork.fault(); why != "" {
		c.fault("fork %q %s", path, why)
	}
	if b := n.set.retry; b != nil && (b.Base < 0 || b.Max < 0 || b.Attempts < 0) {
		c.fault("step %q has a Retry with a negative number", path)
	}
	if n.set.deadline < 0 {
		c.fault("step %q has a negative deadline", path)
	}
	switch done := n.set.done.(type) {
	case nil:
	case func(context.Context, *Fiber[P]) (bool, error):
		s.done = func(ctx context.Context, f any) (bool, error) { return done(ctx, f.(*Fiber[P])) }
	default:
		c.fault("Done of step %q is for another packet: %T", path, done)
	}
	switch fn := n.set.undo.(type) {
	case nil:
	case StepFunc[P]:
		undo = func(ctx context.Context, f any) Next { return fn(ctx, f.(*Fiber[P])) }
		s.undoes = true
		if s.detour {
			c.fault("detour %q has an Undo, which would never run", path)
		}
	default:
		c.fault("Undo of step %q is for another packet: %T", path, fn)
	}
	c.def.steps = append(c.def.steps, s)
	c.sets = append(c.sets, n.set)
	c.undos = append(c.undos, undo)
}

// link makes each step of the line point to the following one. Detours are not in the line.
func (c *compiler[P]) link() {
	next := none
	for i := len(c.def.steps) - 1; i >= 0; i-- {
		if s := &c.def.steps[i]; !s.detour {
			s.next, next = next, int32(i)
		}
	}
	c.def.first = next
	if next == none {
		c.fault("no step in the line")
	}
}

func (c *compiler[P]) resolveTargets() {
	for i, set := range c.sets {
		s := &c.def.steps[i]
		for _, name := range set.targets {
			to, ok := c.def.resolve(int32(i), name)
			if !ok {
				c.fault("step %q goes to %q: %w", s.path, name, errUnknownStep)
				continue
			}
			s.targets = append(s.targets, to)
		}
		if set.onError == "" {
			continue
		}
		to, ok := c.def.resolve(int32(i), set.onError)
		if !ok {
			c.fault("step %q goes to %q on error: %w", s.path, set.onError, errUnknownStep)
			continue
		}
		s.onError = to
	}
	// A cycle of error handlers would repeat forever.
	for i := range c.def.steps {
		slow, n := int32(i), 0
		for slow != none && n <= len(c.def.steps) {
			slow, n = c.def.steps[slow].onError, n+1
			if slow == int32(i) {
				c.fault("step %q is its own error handler, in a cycle of %d", c.def.steps[i].path, n)
				break
			}
		}
	}
}

// buildUndo makes the flow that runs the undo steps in reverse order.
func (c *compiler[P]) buildUndo() {
	u := &def{name: c.def.name + "/undo", forward: c.def, index: map[string]int32{}, first: none}
	for i := len(c.def.steps) - 1; i >= 0; i-- {
		if c.undos[i] == nil {
			continue
		}
		set := c.sets[i]
		u.index[c.def.steps[i].path] = int32(len(u.steps))
		u.undoes = append(u.undoes, int32(i))
		path := c.def.steps[i].path
		u.steps = append(u.steps, step{
			path: path, run: c.undos[i], retry: set.retry, next: none, onError: none, fork: c.def.steps[i].fork,
		})
	}
	for i := range u.steps {
		if i+1 < len(u.steps) {
			u.steps[i].next = int32(i + 1)
		}
	}
	if len(u.steps) > 0 {
		u.first = 0
	}
	c.def.undo = u
}

// eachChild returns the children of a fork.
type eachChild[P any] func(context.Context, *Fiber[P]) ([]Child, error)

// step returns the step function that runs the children.
func (each eachChild[P]) step(mode forkMode) func(context.Context, any) Next {
	return func(ctx context.Context, fiber any) Next {
		f := fiber.(*Fiber[P])
		children, err := each(ctx, f)
		if err != nil {
			return f.Fail(err)
		}
		return Next{op: opFork, forked: &forkSpec{children: children, mode: mode}}
	}
}

// undo returns the step function that undoes the children.
func (each eachChild[P]) undo(limit int) func(context.Context, any) Next {
	undoing := func(ctx context.Context, f *Fiber[P]) ([]Child, error) {
		children, err := each(ctx, f)
		var undo []Child
		for _, c := range children {
			if c.undoes() {
				c.def = c.def.undo
				undo = append(undo, c)
			}
		}
		return undo, err
	}
	return eachChild[P](undoing).step(forkMode{limit: limit})
}
