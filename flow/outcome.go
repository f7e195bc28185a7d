package flow

import (
	"context"
	"fmt"
	"time"
)

// apply does what a step has returned. An await that a restart has cut short goes on counting until its deadline.
func (r *run) apply(n Next, deadline int64) move {
	f := r.f
	if f.tokens && n.op != opSuspend {
		r.dropToken()
	}
	then, orElse := none, none
	var ok bool
	if n.then != "" {
		if then, ok = f.flow.def.resolve(f.pc, n.then); !ok {
			return r.fail(fmt.Errorf("cannot go to %q: %w", n.then, ErrUnknownStep), none)
		}
	}
	if n.orElse != "" {
		if orElse, ok = f.flow.def.resolve(f.pc, n.orElse); !ok {
			return r.fail(fmt.Errorf("cannot go to %q: %w", n.orElse, ErrUnknownStep), none)
		}
	}
	switch n.op {
	case opNext:
		return r.after(then)
	case opGoto:
		if n.then == "" {
			return r.fail(fmt.Errorf("cannot go to %q: %w", "", ErrUnknownStep), orElse)
		}
		return r.after(then)
	case opEnd:
		return move{kind: moveEnd}
	case opFail:
		return r.fail(n.err, orElse)
	case opYield:
		return r.yieldTo(r.after(then))
	case opDelay:
		return r.sleep(whyDelay, then, orElse, n.d)
	case opRetry:
		return r.sleep(whyRetry, none, orElse, n.d)
	case opSuspend:
		return r.suspend(n, then, orElse)
	case opAwait:
		return r.await(n, then, orElse, deadline)
	case opFork:
		return r.fork(n, then, orElse)
	}
	return r.fail(ErrNoOutcome, none)
}

// after is where the fiber goes on once a step is done: the given step, or the following one.
func (r *run) after(then int32) move {
	f := r.f
	r.forgetError()
	if then == none {
		return r.advance()
	}
	d := f.flow.def
	if !d.steps[then].detour {
		if x := f.x.Load(); x != nil {
			x.back = x.back[:0]
		}
		return move{kind: moveEnter, to: then}
	}
	x := f.ext()
	for i := range x.back { // a detour of a detour that leads back: no deeper
		if x.back[i].pc == f.pc {
			x.back = x.back[:i]
			break
		}
	}
	x.back = append(x.back, back{pc: f.pc, attempt: f.attempt, entered: f.entered})
	return move{kind: moveEnter, to: then}
}

// advance goes to the following step, or back from a detour.
func (r *run) advance() move {
	f, st := r.f, r.f.step()
	if !st.detour {
		return move{kind: moveEnter, to: st.next}
	}
	x := f.x.Load()
	if x == nil || len(x.back) == 0 {
		return r.fail(fmt.Errorf("cannot return from a detour that nothing went to: %w", ErrUnknownStep), none)
	}
	b := x.back[len(x.back)-1]
	x.back = x.back[:len(x.back)-1]
	return move{kind: moveRepeat, to: b.pc, attempt: b.attempt + 1, entered: b.entered}
}

func (r *run) forgetError() {
	if x := r.f.x.Load(); x != nil {
		x.lastErr = nil
	}
}

// fail is a step that failed with an error; a retry may follow.
func (r *run) fail(err error, orElse int32) move {
	f, st := r.f, r.f.step()
	if r.ctx.Err() != nil && context.Cause(r.ctx) == ErrTimeout && err != errDeadline && err != errFiberLate {
		late := errDeadline
		if r.fiberLate() {
			late = errFiberLate
		}
		if err == ErrTimeout || err == context.Canceled { // what the context says; it adds nothing
			err = late
		} else {
			err = fmt.Errorf("%w: %w", late, err)
		}
	}
	if st.retry != nil && !st.retry.exhausted(int(f.attempt)+1) && !f.cancelled.Load() && !f.is(err, ErrFinal) {
		at, d := r.deadlines(), st.retry.Delay(int(f.attempt)+1)
		if at == 0 || plus(r.now, d) < at {
			return r.sleep(whyRetry, none, orElse, d)
		}
	}
	return r.failed(err, orElse)
}

// failed is a step that failed for good.
func (r *run) failed(err error, orElse int32) move {
	f := r.f
	err = f.inPath(err)
	if orElse == none {
		orElse = f.step().onError
	}
	if orElse == none || r.fiberLate() {
		return move{kind: moveFailed, err: err}
	}
	m := r.after(orElse)
	f.ext().lastErr = err
	return m
}

// sleep parks the fiber for a time.
func (r *run) sleep(why reason, then, orElse int32, d time.Duration) move {
	f := r.f
	f.resume, f.wake = then, plus(r.now, max(d, 0))
	f.park = nil
	if orElse != none {
		f.park = &parking{orElse: orElse}
	}
	switch {
	case why == whyRetry:
		r.savePark(f.attempt+1, why, 0, orElse)
	case d <= 0:
		return r.after(then)
	default:
		r.saveDelay(then, orElse)
	}
	if r.tryPark(why, r.earliest(f.wake), 0) {
		return move{kind: moveAway}
	}
	return move{kind: moveCancel}
}

// slept goes on after a delay or the wait for a retry, unless the deadline of the step came first.
func (r *run) slept(why reason) move {
	f := r.f
	orElse := r.orElse()
	f.park = nil
	if at := r.deadline(); at > 0 && r.now >= at && (why == whyRetry || at < f.wake) {
		return r.fail(errDeadline, orElse)
	}
	if why == whyRetry {
		return move{kind: moveRepeat, to: f.pc, attempt: f.attempt + 1, entered: f.entered}
	}
	return r.after(f.resume)
}

// target is where after(then) would lead.
func (r *run) target(then int32) int32 {
	st := r.f.step()
	switch x := r.f.x.Load(); {
	case then != none:
		return then
	case st.detour && x != nil && len(x.back) > 0:
		return x.back[len(x.back)-1].pc
	}
	return st.next
}

func (r *run) orElse() int32 {
	if p := r.f.park; p != nil {
		return p.orElse
	}
	return none
}

// tryPark parks the fiber, to be looked at when it is poked or at the given time (0: never); false if it was cancelled or
// poked with one of wake meanwhile. After true the fiber is not ours any more.
func (r *run) tryPark(why reason, at int64, wake pokes) bool {
	e, f := r.e, r.f
	if why != whySuspend {
		r.stopContext()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.cancelled.Load() || f.poke&wake != 0 {
		return false
	}
	f.state, f.why, f.poke, f.worker = Parked, why, 0, 0
	if at > 0 {
		e.setTimer(f, at)
	} else {
		e.timers.remove(f)
	}
	return true
}

// yieldTo enters the step of m and queues the fiber.
func (r *run) yieldTo(m move) move {
	if m.kind != moveEnter && m.kind != moveRepeat || m.to == none {
		return m
	}
	r.enter(m)
	return r.yield()
}

func (r *run) yield() move {
	r.stopContext()
	e := r.e
	e.mu.Lock()
	defer e.mu.Unlock()
	r.f.worker = 0
	e.makeReady(r.f)
	return move{kind: moveAway}
}
