package flow

import "fmt"

// move is the next action of a fiber.
type move struct {
	to      int32 // the step to enter, none after the last one
	attempt int32
	entered int64 // when the step was first entered, if it is repeated
	err     error // the error of moveFailed
	kind    moveKind
}

type moveKind uint8

const (
	moveEnter  moveKind = iota // enter the step to
	moveRepeat                 // run the step to again
	moveStay                   // run the current step without entering it
	moveEnd                    // the fiber is completed
	moveFailed                 // the fiber has failed
	moveAway                   // the fiber is parked, queued or ended, and no longer belongs to the worker
	moveCancel                 // the fiber was cancelled while it was about to park
)

// errNoWayBack fails a detour that no step went to.
var errNoWayBack = fmt.Errorf("cannot return from a detour that nothing went to: %w", errUnknownStep)

// destination finds the step that Then, Goto or Else names.
func destination(f *fiber, name string) (int32, error) {
	to, ok := f.flow.def.resolve(f.progress.pc, name)
	if !ok {
		return none, fmt.Errorf("cannot go to %q: %w", name, errUnknownStep)
	}
	return to, nil
}

// lateFiber is the move of a fiber whose deadline has passed.
func lateFiber(f *fiber) move { return move{kind: moveFailed, err: inPath(f, errFiberLate)} }

// follow returns the move after a step is done: to the step then or, if that is none, to the following step.
func follow(f *fiber, then int32) (move, error) {
	if f.x.Load().led() != nil {
		annotate(f, func(n *notes) { n.led = nil })
	}
	if then == none {
		if st := f.step(); !st.detour {
			return move{kind: moveEnter, to: st.next}, nil
		}
		return comeBack(f)
	}
	if !f.flow.def.steps[then].detour {
		if x := f.x.Load(); x != nil {
			x.back = x.back[:0]
		}
		return move{kind: moveEnter, to: then}, nil
	}
	x := f.ext()
	for i := range x.back { // a detour of a detour that leads back: keeps x.back from growing
		if x.back[i].pc == f.progress.pc {
			x.back = x.back[:i]
			break
		}
	}
	x.back = append(x.back, here(f))
	return move{kind: moveEnter, to: then}, nil
}

// comeBack returns the move from a detour back to the step that went there.
func comeBack(f *fiber) (move, error) {
	x := f.x.Load()
	if x == nil || len(x.back) == 0 {
		return move{}, errNoWayBack
	}
	b := x.back[len(x.back)-1]
	x.back = x.back[:len(x.back)-1]
	return move{kind: moveRepeat, to: b.pc, attempt: b.attempt + 1, entered: b.entered}, nil
}

// nextStep returns the step that follow(f, then) would enter.
func nextStep(f *fiber, then int32) int32 {
	st := f.step()
	switch x := f.x.Load(); {
	case then != none:
		return then
	case st.detour && x != nil && len(x.back) > 0:
		return x.back[len(x.back)-1].pc
	}
	return st.next
}

// here returns the current step, for the way back from a detour.
func here(f *fiber) back {
	return back{pc: f.progress.pc, attempt: f.progress.attempt, entered: f.progress.entered}
}
