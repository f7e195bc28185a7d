package flow

import (
	"fmt"
	"slices"
	"strconv"
)

// maxDepth is the maximum nesting depth of forks.
const maxDepth = 64

// newJoin returns the fork that f has asked for, without starting it.
func newJoin(f *fiber, spec *forkSpec) (*join, error) {
	j := &join{parent: f, path: f.path(), todo: slices.Clone(spec.children)}
	if f.join != nil {
		j.depth = f.join.depth + 1
	}
	j.forkPolicy = forkPolicy{mode: spec.mode, total: len(j.todo)}
	if err := checkChildren(j.todo, j.depth, spec.mode.quorum); err != nil {
		return nil, err
	}
	j.kids = make([]*fiber, len(j.todo))
	return j, nil
}

// checkChildren validates the children of a fork. A child without a name gets its index as the name.
func checkChildren(children []Child, depth, quorum int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	if quorum > len(children) {
		return fmt.Errorf("%w: cannot reach a quorum of %d with %d children", ErrInvalid, quorum, len(children))
	}
	names := make(map[string]struct{}, len(children))
	for i := range children {
		c := &children[i]
		if c.def == nil || c.make == nil {
			return fmt.Errorf("%w: cannot fork: child %d is empty", ErrInvalid, i)
		}
		if c.def.err != nil {
			return c.def.err
		}
		if c.name == "" {
			c.name = strconv.Itoa(i)
		}
		if _, dup := names[c.name]; dup {
			return fmt.Errorf("%w: cannot fork: duplicate child %q", ErrInvalid, c.name)
		}
		names[c.name] = struct{}{}
	}
	return nil
}

// forkError returns the outcome of a fork, after its last child has ended: nil, or the errors of the children.
func forkError(j *join) error {
	switch {
	case j.late:
		return errDeadline
	case j.succeeded():
		return nil
	}
	return &ForkError{Path: j.path, Key: j.parent.root().key, Total: j.total, Errs: j.failures()}
}
