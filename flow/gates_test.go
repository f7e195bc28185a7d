package flow

import (
	"errors"
	"testing"
)

// chain returns the IDs of the fibers of a key, the first one first.
func (g *gates) chain(key string) (ids []uint64) {
	for f := g.newest[key]; f != nil; f = before(f) {
		ids = append([]uint64{f.id}, ids...)
	}
	return ids
}

// TestGatesOrderTheFibersOfAKey removes the fibers of a chain in each order. Exactly the fiber that becomes the first
// one is reported as such.
func TestGatesOrderTheFibersOfAKey(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		g := &gates{newest: map[string]*fiber{}}
		fibers := make([]*fiber, 3)
		for i := range fibers {
			fibers[i] = &fiber{id: uint64(i), key: "k"}
			g.number(fibers[i])
			if waits := g.add(fibers[i]); waits != (i > 0) || fibers[i].epoch != uint64(i+1) {
				t.Fatalf("fiber %d waits: %t, epoch %d", i, waits, fibers[i].epoch)
			}
		}
		if holder(fibers[2]) != fibers[0] || holder(fibers[0]) != nil {
			t.Error("the first fiber does not hold the gate")
		}
		alive := []uint64{0, 1, 2}
		for _, i := range order {
			at := 0
			for alive[at] != uint64(i) {
				at++
			}
			succ, first := g.remove(fibers[i])
			switch {
			case at == len(alive)-1 && succ != nil, at < len(alive)-1 && (succ == nil || succ.id != alive[at+1]):
				t.Errorf("%v: after %d comes %v", order, i, succ)
			case first != (at == 0):
				t.Errorf("%v: %d was the first: %t", order, i, first)
			}
			alive = append(alive[:at:at], alive[at+1:]...)
			if got := g.chain("k"); len(got) != len(alive) {
				t.Fatalf("%v: the chain is %v, want %v", order, got, alive)
			}
			for j, id := range g.chain("k") {
				if id != alive[j] {
					t.Errorf("%v: the chain is %v, want %v", order, g.chain("k"), alive)
				}
			}
		}
		if len(g.newest) > 0 {
			t.Errorf("%v: %d keys are left", order, len(g.newest))
		}
	}
}

func TestTheGateAdmits(t *testing.T) {
	t.Parallel()
	last, other := &fiber{}, &fiber{}
	child := &fiber{join: &join{parent: last}}
	for _, tc := range []struct {
		reason string
		last   *fiber
		opt    StartOptions
		want   error
	}{
		{"the first one", nil, StartOptions{Mode: SkipIfBusy}, nil},
		{"a successor", last, StartOptions{}, nil},
		{"not beside another one", last, StartOptions{Mode: SkipIfBusy}, ErrBusy},
		{"a failure step of the newest one", last, StartOptions{Mode: SkipIfBusy, IfCurrent: Handle{last}}, nil},
		{"a failure step of its child", last, StartOptions{IfCurrent: Handle{child}}, nil},
		{"not of an older one", last, StartOptions{IfCurrent: Handle{other}}, ErrNotCurrent},
		{"not of one that has left", nil, StartOptions{IfCurrent: Handle{other}}, ErrNotCurrent},
	} {
		if err := admit(tc.last, &tc.opt); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.reason, err, tc.want)
		}
	}
}
