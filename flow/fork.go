package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// maxDepth bounds forks within forks.
const maxDepth = 64

// join is a fork under way. Guarded by Engine.mu.
type join struct {
	parent *fiber
	path   string
	depth  int
	mode   forkMode
	todo   []Child  // not yet started
	kids   []*fiber // by index; nil before the start and after the end
	alive  int
	done   int // children completed
	errs   []childError
	over   bool // no more children are started
	late   bool // given up because of a deadline
}

type childError struct {
	index int
	err   error
}

func (r *run) fork(n Next, then, orElse int32) move {
	f, e := r.f, r.e
	spec := n.forked
	if spec.fault != "" {
		return r.fail(fmt.Errorf("%w: cannot fork: the fork %s", ErrInvalid, spec.fault), orElse)
	}
	if len(spec.children) == 0 {
		return r.after(then)
	}
	j := &join{parent: f, path: f.path(), mode: spec.mode, todo: slices.Clone(spec.children)}
	if f.join != nil {
		j.depth = f.join.depth + 1
	}
	if err := j.check(); err != nil {
		return r.fail(err, orElse)
	}
	j.kids = make([]*fiber, len(j.todo))
	if slices.ContainsFunc(j.todo, Child.undoes) {
		if err := r.cover(whyFork.String()); err != nil {
			return r.coverLater(err, orElse)
		}
	}
	r.savePark(f.attempt, whyFork, 0, orElse)
	r.stopContext()
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.cancelled.Load() {
		return move{kind: moveCancel}
	}
	f.park = &parking{then: then, orElse: orElse, fork: j}
	f.state, f.why, f.poke, f.worker = Parked, whyFork, 0, 0
	if at := r.earliest(0); at > 0 {
		e.setTimer(f, at)
	} else {
		e.timers.remove(f)
	}
	j.start(e)
	return move{kind: moveAway}
}

// check validates the children and names those without a name by their index.
func (j *join) check() error {
	if j.depth > maxDepth {
		return ErrTooDeep
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
		f := c.make(c.def)
		f.e, f.join, f.part, f.flow = e, j, j.parent.part, e.flows.bind(c.def)
		f.part.refs++
		f.resume = c.def.first
		f.began = e.now()
		f.entered, f.since = f.began, f.began
		x := f.ext()
		x.childName, x.childIndex = c.name, i
		f.linkSpan(j.parent.spanContext())
		j.kids[i] = f
		j.alive++
		e.add(f)
		f.flow.started()
		e.makeReady(f)
	}
}

// childEnded counts a child that has ended, decides what that means for the others, and wakes the parent after the last one.
func (j *join) childEnded(e *Engine, f *fiber, status Status, err error, calls *cancels) {
	x := f.x.Load()
	j.kids[x.childIndex] = nil
	j.alive--
	switch {
	case status == Completed:
		j.done++
	case status == Cancelled && x.cause == ErrNotNeeded:
	default:
		j.errs = append(j.errs, childError{x.childIndex, err})
	}
	q := j.mode.quorum
	switch {
	case j.over:
	case j.mode.failFast && len(j.errs) > 0, q > 0 && j.done >= q, q > 0 && len(j.kids)-len(j.errs) < q:
		j.abandon(e, ErrNotNeeded, calls)
	default:
		j.start(e)
	}
	if j.alive == 0 {
		e.pokeLocked(j.parent, pokeJoin)
	}
}

// abandon cancels the children that are alive, starts no more, and says whether any is alive.
func (j *join) abandon(e *Engine, cause error, calls *cancels) bool {
	j.over, j.todo = true, nil
	for _, f := range j.kids {
		if f != nil {
			e.cancel(f, cause, calls)
		}
	}
	return j.alive > 0
}

// childrenLeft parks the fiber again if children of it are alive: it was picked up because of a deadline, or was cancelled, and
// gives them up.
func (r *run) childrenLeft() bool {
	e, f := r.e, r.f
	var calls cancels
	defer func() { calls.run() }()
	e.mu.Lock()
	defer e.mu.Unlock()
	j := f.park.fork
	if j.alive == 0 {
		return false
	}
	cause := ErrTimeout
	if x := f.x.Load(); f.cancelled.Load() {
		cause = x.cause
	} else {
		j.late = true
	}
	f.state, f.why, f.poke, f.worker = Parked, whyFork, 0, 0
	j.abandon(e, cause, &calls)
	return true
}

// joined goes on after the last child.
func (r *run) joined() move {
	f, p := r.f, r.f.park
	f.park = nil
	j := p.fork
	ok := len(j.errs) == 0
	if j.mode.quorum > 0 {
		ok = j.done >= j.mode.quorum
	}
	switch {
	case ok && j.done > 0 && !j.late:
		return r.after(p.then)
	case j.late:
		return r.fail(errDeadline, p.orElse)
	}
	slices.SortFunc(j.errs, func(a, b childError) int { return cmp.Compare(a.index, b.index) })
	err := &ForkError{Path: j.path, Key: f.Key(), Total: len(j.kids)}
	for _, c := range j.errs {
		err.Errs = append(err.Errs, c.err)
	}
	return r.fail(err, p.orElse)
}
