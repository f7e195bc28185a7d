package flow

import (
	"cmp"
	"fmt"
	"slices"
)

// forkMode says how a fork runs its children and when the fork ends.
type forkMode struct {
	limit    int
	quorum   int  // 0: all
	some     bool // quorum was given
	failFast bool
}

// fault returns what is invalid in the mode, or "".
func (m forkMode) fault() string {
	switch {
	case m.limit < 0:
		return fmt.Sprintf("has a negative limit, %d", m.limit)
	case m.some && m.quorum < 1:
		return fmt.Sprintf("has a quorum of %d, below 1", m.quorum)
	}
	return ""
}

// forkPolicy decides which child of a fork starts next, and when the fork ends. It counts children and knows no fiber.
// It is a value of its owner, and has no lock.
type forkPolicy struct {
	mode    forkMode
	total   int // number of children
	started int
	alive   int
	done    int // number of completed children
	errs    []childError
	over    bool // no more children start
	late    bool // the fork was abandoned because of a deadline
}

type childError struct {
	index int
	err   error
}

// next starts the next child, and returns its index. ok is false if none may start now.
func (p *forkPolicy) next() (index int, ok bool) {
	if p.over || p.started == p.total || p.mode.limit > 0 && p.alive >= p.mode.limit {
		return 0, false
	}
	p.started++
	p.alive++
	return p.started - 1, true
}

// childOutcome is the end of a child, as a fork counts it.
type childOutcome uint8

const (
	childCompleted childOutcome = iota
	childFailed
	childNotNeeded // cancelled by its fork; neither a success nor a failure
)

// end counts an ended child. It reports whether the fork needs no further child and cancels those that are alive.
func (p *forkPolicy) end(index int, outcome childOutcome, err error) (enough bool) {
	p.alive--
	switch outcome {
	case childCompleted:
		p.done++
	case childFailed:
		p.errs = append(p.errs, childError{index, err})
	}
	q := p.mode.quorum
	return !p.over && (p.mode.failFast && len(p.errs) > 0 || q > 0 && (p.done >= q || p.total-len(p.errs) < q))
}

// stop makes the fork start no more children.
func (p *forkPolicy) stop() { p.over = true }

// succeeded reports the outcome of a fork without live children.
func (p *forkPolicy) succeeded() bool {
	if p.mode.quorum > 0 {
		return p.done >= p.mode.quorum
	}
	return len(p.errs) == 0 && p.done > 0
}

// failures returns the errors of the failed children, by index.
func (p *forkPolicy) failures() (errs []error) {
	slices.SortFunc(p.errs, func(a, b childError) int { return cmp.Compare(a.index, b.index) })
	for _, c := range p.errs {
		errs = append(errs, c.err)
	}
	return errs
}
