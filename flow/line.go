package flow

import "fmt"

// move is what a fiber does next.
type move struct {
	to      int32 // the step to enter, none at the end of the line
	attempt int32
	entered int64 // when it was entered first, if repeated
	err     error // why the fiber has failed
	kind    moveKind
}

type moveKind uint8

const (
	moveEnter  moveKind = iota // enter the step at to
	moveRepeat                 // run it again
	moveStay                   // run the step at pc as it is
	moveEnd                    // the fiber is completed
	moveFailed                 // the fiber has failed
	moveAway                   // the fiber is parked, queued or ended: it is no longer ours
	moveCancel                 // the fiber was cancelled while it was about to park
)

// errNoWayBack fails a detour that nothing went to.
var errNoWayBack = fmt.Errorf("cannot return from a detour that nothing went to: %w", errUnknownStep)

// follow is where the fiber goes on once a step is done: the given step, or the following one.
func (f *fiber) follow(then int32) (move, error) {
	if f.Err() != nil {
		f.note(func(n *notes) { n.led = nil })
	}
	if then == none {
		if st := f.step(); !st.detour {
			return move{kind: moveEnter, to: st.next}, nil
		}
		return f.comeBack()
	}
	if !f.flow.def.steps[then].detour {
		if x := f.x.Load(); x != nil {
			x.back = x.back[:0]
		}
		return move{kind: moveEnter, to: then}, nil
	}
	x := f.ext()
	for i := range x.back { // a detour of a detour that leads back: no deeper
		if x.back[i].pc == f.progress.pc {
			x.back = x.back[:i]
			break
		}
	}
	x.back = append(x.back, f.leave())
	return move{kind: moveEnter, to: then}, nil
}

// comeBack returns from a detour.
func (f *fiber) comeBack() (move, error) {
	x := f.x.Load()
	if x == nil || len(x.back) == 0 {
		return move{}, errNoWayBack
	}
	b := x.back[len(x.back)-1]
	x.back = x.back[:len(x.back)-1]
	return move{kind: moveRepeat, to: b.pc, attempt: b.attempt + 1, entered: b.entered}, nil
}

// target is where follow(then) would lead.
func (f *fiber) target(then int32) int32 {
	st := f.step()
	switch x := f.x.Load(); {
	case then != none:
		return then
	case st.detour && x != nil && len(x.back) > 0:
		return x.back[len(x.back)-1].pc
	}
	return st.next
}

// leave is the step that the fiber is at, to be returned to.
func (f *fiber) leave() back {
	return back{pc: f.progress.pc, attempt: f.progress.attempt, entered: f.progress.entered}
}
