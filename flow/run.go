package flow

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// quantum is how many steps a fiber runs in a row while others wait.
const quantum = 64

// run is a fiber in the hands of a worker, from when it is picked up until it parks, yields or ends.
type run struct {
	e   *Engine
	f   *fiber
	ctx context.Context
	now int64
	// timed tells that a timer ends the context at a deadline of the step or the fiber.
	timed bool
}

// move is what comes next.
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
	moveAway                   // the fiber is parked, queued or ended: not ours any more
	moveCancel                 // the fiber was cancelled while it was about to park
)

// slice runs f until it is not ours any more.
func (e *Engine) slice(f *fiber, why reason, poke pokes) {
	r := run{e: e, f: f, now: e.now()}
	m := r.pickUp(why, poke)
	for steps := 0; ; steps++ {
		if f.cancelled.Load() && m.kind != moveAway {
			m.kind = moveCancel
		}
		switch m.kind {
		case moveAway:
			return
		case moveCancel:
			r.end(Cancelled, nil)
			return
		case moveFailed:
			r.end(Failed, m.err)
			return
		case moveEnter, moveRepeat:
			if m.to == none {
				r.end(Completed, nil)
				return
			}
			r.enter(m)
		case moveEnd:
			r.end(Completed, nil)
			return
		}
		if steps >= quantum && e.queued.Load() > 0 {
			m = r.yield()
			continue
		}
		m = r.step()
	}
}

// pickUp turns what the fiber waited for into a move.
func (r *run) pickUp(why reason, poke pokes) move {
	f := r.f
	r.stopContext() // of a suspension
	if why == whyFork && r.childrenLeft() {
		return move{kind: moveAway}
	}
	if f.cancelled.Load() {
		return move{kind: moveCancel}
	}
	r.openContext()
	if r.fiberLate() {
		return move{kind: moveFailed, err: inPath(f.path(), errFiberLate)}
	}
	switch why {
	case whyDelay, whyRetry:
		if at := r.deadline(); at > 0 && at < f.wake && r.now >= at {
			return r.fail(errDeadline, r.orElse())
		}
		if why == whyRetry {
			return move{kind: moveRepeat, to: f.pc, attempt: f.attempt + 1, entered: f.entered}
		}
		return r.after(f.resume)
	case whySuspend:
		return r.resumed(poke)
	case whyAwait:
		return r.awaited()
	case whyFork:
		return r.joined()
	}
	if !f.begun {
		return r.begin()
	}
	return move{kind: moveStay} // after a yield
}

// begin passes the gate: from here on the fiber counts as running.
func (r *run) begin() move {
	f := r.f
	r.e.mu.Lock()
	f.begun = true
	r.e.mu.Unlock()
	r.startTrace()
	if x := f.x.Load(); x != nil && x.durable != nil {
		return r.load()
	}
	return move{kind: moveEnter, to: f.resume}
}

func (r *run) enter(m move) {
	f := r.f
	f.mu.Lock()
	f.pc, f.attempt = m.to, m.attempt
	f.entered = r.now
	if m.kind == moveRepeat {
		f.entered = m.entered
	}
	f.since = r.now
	f.mu.Unlock()
	f.entering = true
}

// step runs the step that the fiber is at.
func (r *run) step() move {
	f, st := r.f, r.f.step()
	x := f.x.Load()
	if late := r.arm(); late != nil {
		return r.fail(late, none)
	}
	if st.done != nil && f.entering {
		var done bool
		err := f.guard(func() (err error) {
			done, err = st.done(r.ctx, f)
			return err
		})
		if err != nil {
			return r.failed(err, none)
		}
		if done {
			r.record(opSkip)
			return r.advance()
		}
	}
	f.entering = false
	if st.save && x != nil && x.durable != nil {
		if err := r.save(f.pc, reasonSave, 0, 0, true); err != nil {
			return r.fail(err, none)
		}
	}
	n, err := r.call(st)
	if err != nil {
		r.record(opPanic)
		return r.failed(err, none)
	}
	r.record(n.op)
	return r.apply(n)
}

// arm has the context of the step end at its deadline, or that of the fiber; it returns an error if that has passed.
func (r *run) arm() error {
	at := r.deadlines()
	switch {
	case at == 0 && !r.timed:
		return nil
	case r.fiberLate():
		return errFiberLate
	case at > 0 && r.now >= at:
		return errDeadline
	}
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if r.ctx.Err() != nil { // the deadline was that of the step before
		r.openContext()
	}
	if r.timed = at > 0; r.timed {
		r.e.setTimer(r.f, at)
	} else {
		r.e.timers.remove(r.f)
	}
	return nil
}

// call runs user code; a panic of it is an error.
func (r *run) call(st *step) (n Next, err error) {
	defer r.f.caught(&err)
	opt := &r.e.opt
	if opt.Hook != nil {
		opt.Hook(Handle{r.f}, r.f.path(), false)
	}
	if opt.Tracer == nil && !opt.Labels {
		n = st.run(r.ctx, r.f)
	} else {
		n = r.traced(st)
	}
	if opt.Hook != nil {
		opt.Hook(Handle{r.f}, r.f.path(), true)
	}
	return n, nil
}

// caught turns a panic into an error. It is deferred.
func (f *fiber) caught(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Path: f.path(), Value: v, Stack: debug.Stack()}
	}
}

func (f *fiber) guard(fn func() error) (err error) {
	defer f.caught(&err)
	return fn()
}

// record notes the outcome of a step that has just run.
func (r *run) record(outcome op) {
	f, end := r.f, r.e.now()
	took := end - r.now
	f.mu.Lock()
	f.trail.add(f.pc, outcome, took)
	f.since = end
	f.mu.Unlock()
	f.flow.steps[f.pc].observe(outcome, took)
	r.now = end
}

// apply does what a step has returned.
func (r *run) apply(n Next) move {
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
		return r.await(n, then, orElse)
	case opFork:
		return r.fork(n, then, orElse)
	}
	return r.fail(errZeroNext, none)
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
	if st.retry != nil && !st.retry.exhausted(int(f.attempt)+1) && !f.cancelled.Load() {
		at, d := r.deadlines(), st.retry.Delay(int(f.attempt)+1)
		if at == 0 || r.now+int64(d) < at {
			return r.sleep(whyRetry, none, orElse, d)
		}
	}
	return r.failed(err, orElse)
}

// failed is a step that failed for good.
func (r *run) failed(err error, orElse int32) move {
	f := r.f
	err = inPath(f.path(), err)
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
	f.resume, f.wake = then, r.now+int64(max(d, 0))
	if f.wake < r.now {
		f.wake = 1<<63 - 1 // for ever
	}
	f.park = nil
	if orElse != none {
		f.park = &parking{orElse: orElse}
	}
	to, attempt := f.pc, f.attempt+1
	if why == whyDelay {
		to, attempt = r.target(then), 0
	}
	if to != none {
		r.savePark(to, attempt, why, f.wake, 0)
	}
	if d <= 0 && why == whyDelay {
		return r.after(then)
	}
	if r.tryPark(why, r.earliest(f.wake), 0) {
		return move{kind: moveAway}
	}
	return move{kind: moveCancel}
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

// deadline is when the time of the step is over, 0 if it has no limit.
func (r *run) deadline() int64 {
	if d := r.f.step().deadline; d > 0 {
		return r.f.entered + int64(d)
	}
	return 0
}

// deadlines is when the time of the step or of the fiber is over.
func (r *run) deadlines() int64 {
	at := r.deadline()
	if x := r.f.x.Load(); x != nil && x.deadline > 0 && (at == 0 || x.deadline < at) {
		at = x.deadline
	}
	return at
}

func (r *run) earliest(at int64) int64 {
	if limit := r.deadlines(); limit > 0 && (at == 0 || limit < at) {
		return limit
	}
	return at
}

func (r *run) fiberLate() bool {
	x := r.f.x.Load()
	return x != nil && x.deadline > 0 && r.now >= x.deadline
}

// end ends the fiber: callback first, then everything that waits for it. It is called again, to no effect, if the callback ends
// its goroutine.
func (r *run) end(status Status, err error) {
	e, f := r.e, r.f
	r.stopContext()
	e.mu.Lock()
	if f.sealed {
		e.mu.Unlock()
		return
	}
	f.sealed = true
	if f.cancelled.Load() {
		status = Cancelled
	}
	e.timers.remove(f)
	f.seq++
	e.mu.Unlock()
	if status == Cancelled {
		err = &CancelError{Path: f.path(), Cause: f.x.Load().cause}
		if len(f.flow.steps) > 0 {
			r.record(opCancel)
		}
	}
	if err != nil {
		f.ext().err = err
	}
	defer r.settle(status, err)
	r.dropWaits()
	r.saveEnd(status, err)
	r.logEnd(status, err)
	r.endTrace(status, err)
	r.callBack(Result{Handle: Handle{f}, Status: status, Err: err, Begun: f.begun})
}

func (r *run) callBack(res Result) {
	if r.f.onEnd == nil {
		return
	}
	if err := r.f.guard(func() error { r.f.onEnd(res); return nil }); err != nil {
		r.logPanic(err)
	}
}

// settle makes the end known: to the key's successor, the parent, and those who wait.
func (r *run) settle(status Status, err error) {
	e, f := r.e, r.f
	var calls cancels
	e.mu.Lock()
	f.state, f.why, f.worker = status, whyNone, 0
	f.park = nil
	e.timers.remove(f)
	e.remove(f)
	e.leaveGate(f)
	e.ready.leave(f.group)
	f.flow.ended(status)
	e.flows.release(f.flow)
	x := f.x.Load()
	if x != nil && x.done != nil {
		close(x.done)
	}
	if f.join != nil {
		f.join.childEnded(e, f, status, err, &calls)
	}
	e.mu.Unlock()
	calls.run()
}
