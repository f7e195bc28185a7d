package flow

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestForkPolicy starts the children that a policy allows, and ends them in the given order.
func TestForkPolicy(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		total   int
		mode    forkMode
		ends    string // of the children in the order of their start: c completed, f failed, n not needed
		started []int  // number of started children, at the start and after each end
		enough  int    // number of ends after which the fork needs no more; 0: never
		errs    []int  // indexes of the failed children
		ok      bool
	}{
		{"all complete", 3, forkMode{}, "ccc", []int{3, 3, 3, 3}, 0, nil, true},
		{"the others continue after a failure", 3, forkMode{}, "fcc", []int{3, 3, 3, 3}, 0, []int{0}, false},
		{"errors are in order", 3, forkMode{limit: 2}, "fcf", []int{2, 3, 3, 3}, 0, []int{0, 2}, false},
		{"one at a time", 3, forkMode{limit: 1}, "ccc", []int{1, 2, 3, 3}, 0, nil, true},
		{"the first failure ends the fork", 3, forkMode{limit: 2, failFast: true}, "fn", []int{2, 2, 2}, 1, []int{0}, false},
		{"a quorum ends the fork", 3, forkMode{quorum: 2}, "ccn", []int{3, 3, 3, 3}, 2, nil, true},
		{"a quorum outlives a failure", 3, forkMode{quorum: 2}, "fcc", []int{3, 3, 3, 3}, 3, []int{0}, true},
		{"an impossible quorum ends the fork", 3, forkMode{quorum: 2}, "ffn", []int{3, 3, 3, 3}, 2, []int{0, 1}, false},
		{"all were cancelled", 2, forkMode{}, "nn", []int{2, 2, 2}, 0, nil, false},
	} {
		p := forkPolicy{mode: tc.mode, total: tc.total}
		start := func() {
			for {
				if _, ok := p.next(); !ok {
					return
				}
			}
		}
		start()
		got, enough := []int{p.started}, 0
		for i, end := range tc.ends {
			outcome := map[rune]childOutcome{'c': childCompleted, 'f': childFailed, 'n': childNotNeeded}[end]
			if p.end(i, outcome, fmt.Errorf("%d", i)) {
				enough = i + 1
				p.stop()
			}
			start()
			got = append(got, p.started)
		}
		var errs []int
		for _, err := range p.failures() {
			for i := range tc.total {
				if err.Error() == fmt.Sprint(i) {
					errs = append(errs, i)
				}
			}
		}
		if !slices.Equal(got, tc.started) || enough != tc.enough || !slices.Equal(errs, tc.errs) ||
			p.succeeded() != tc.ok || p.alive != 0 {
			t.Errorf("%s: started %v, enough after %d, errors of %v, succeeded %t, %d alive", tc.reason, got, enough, errs,
				p.succeeded(), p.alive)
		}
	}
}

func TestForkPolicySortsItsErrors(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	p := forkPolicy{total: 2}
	p.next()
	p.next()
	p.end(1, childFailed, second)
	p.end(0, childFailed, first)
	if got := p.failures(); !slices.Equal(got, []error{first, second}) {
		t.Errorf("got %v", got)
	}
}
