package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// maxDepth is the maximum nesting depth of forks.
const maxDepth = 64

// newJoin returns the fork that f has asked for, without starting it.
func newJoin(f *fiber, spec *forkSpec) (*join, error) {
	j := &join{parent: f, path: f.path(), mode: spec.mode, todo: slices.Clone(spec.children)}
	if f.join != nil {
		j.depth = f.join.depth + 1
	}
	if err := j.check(); err != nil {
		return nil, err
	}
	j.kids = make([]*fiber, len(j.todo))
	return j, nil
}

// check validates the children. A child without a name gets its index as the name.
func (j *join) check() error {
	if j.depth > maxDepth {
		return errTooDeep
	}
	if j.mode.quorum > len(j.todo) {
		return fmt.Errorf("%w: cannot reach a quorum of %d with %d children", ErrInvalid, j.mode.quorum, len(j.todo))
	}
	names := make(map[string]struct{}, len(j.todo))
	for i := range j.todo {
		c := &j.todo[i]
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

// start starts as many children as the limit allows.
func (j *join) start(e *Engine) {
	for !j.over && len(j.todo) > 0 && (j.mode.limit == 0 || j.alive < j.mode.limit) {
		i := len(j.kids) - len(j.todo)
		c := j.todo[0]
		j.todo[0] = Child{}
		j.todo = j.todo[1:]
		f := c.make()
		f.e, f.join, f.part, f.flow = e, j, j.parent.part, e.flows.bind(c.def)
		f.part.refs++
		f.resume = c.def.first
		f.progress.start(e.now())
		x := f.ext()
		x.childName, x.childIndex = c.name, int32(i)
		f.followParent(j.parent)
		j.kids[i] = f
		j.alive++
		e.add(f)
		f.flow.started()
		e.makeReady(f)
	}
}

// childEnded counts an ended child, cancels or starts others as the mode requires, and wakes the parent after the last
// one.
func (j *join) childEnded(e *Engine, f *fiber, status Status, err error, calls *cancels) {
	x := f.x.Load()
	j.kids[x.childIndex] = nil
	j.alive--
	switch {
	case status == Completed:
		j.done++
	case status == Cancelled && x.cause == errNotNeeded:
	default:
		j.errs = append(j.errs, childError{int(x.childIndex), err})
	}
	q := j.mode.quorum
	switch {
	case j.over:
	case j.mode.failFast && len(j.errs) > 0, q > 0 && j.done >= q, q > 0 && len(j.kids)-len(j.errs) < q:
		j.abandon(e, errNotNeeded, calls)
	default:
		j.start(e)
	}
	if j.alive == 0 {
		e.poke(j.parent, pokeJoin)
	}
}

// giveUp cancels the live children and parks the parent again. It returns false if no child is alive. The parent was
// picked up because it was cancelled or its deadline passed.
func (j *join) giveUp() bool {
	f, e := j.parent, j.parent.e
	var calls cancels
	defer func() { calls.run() }()
	e.mu.Lock()
	defer e.mu.Unlock()
	if j.alive == 0 {
		return false
	}
	cause := ErrTimeout
	if x := f.x.Load(); f.progress.cancelled() {
		cause = x.cause
	} else {
		j.late = true
	}
	e.park(f, whyFork, 0)
	j.abandon(e, cause, &calls)
	return true
}

// err returns the outcome of the fork, after its last child has ended.
func (j *join) err() error {
	ok := len(j.errs) == 0
	if j.mode.quorum > 0 {
		ok = j.done >= j.mode.quorum
	}
	switch {
	case j.late:
		return errDeadline
	case ok && j.done > 0:
		return nil
	}
	slices.SortFunc(j.errs, func(a, b childError) int { return cmp.Compare(a.index, b.index) })
	err := &ForkError{Path: j.path, Key: j.parent.Key(), Total: len(j.kids)}
	for _, c := range j.errs {
		err.Errs = append(err.Errs, c.err)
	}
	return err
}
