package flow

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// apply applies the result of a step. deadline is that of an await that a restart interrupted, 0 if none.
func (r *run) apply(n Next, deadline int64) move {
	then, orElse := none, none
	var err error
	if n.then != "" {
		if then, err = r.resolve(n.then); err != nil {
			return r.fail(err, none)
		}
	}
	if n.orElse != "" {
		if orElse, err = r.resolve(n.orElse); err != nil {
			return r.fail(err, none)
		}
	}
	switch n.op {
	case opNext:
		return r.follow(then)
	case opGoto:
		if n.then == "" {
			return r.fail(fmt.Errorf("cannot go to %q: %w", "", errUnknownStep), orElse)
		}
		return r.follow(then)
	case opEnd:
		return move{kind: moveEnd}
	case opFail:
		return r.fail(n.err, orElse)
	case opYield:
		m := r.follow(then)
		if m.kind != moveEnter && m.kind != moveRepeat || m.to == none {
			return m
		}
		r.enter(m)
		return r.yield()
	case opDelay:
		return r.sleep(whyDelay, then, orElse, n.d)
	case opRetry:
		return r.sleep(whyRetry, none, orElse, n.d)
	case opSuspend:
		return r.suspend(n, then, orElse)
	case opAwait:
		return r.await(n, then, orElse, deadline)
	case opFork:
		return r.fork(n.forked, then, orElse)
	}
	return r.fail(errNoOutcome, none)
}

// resolve finds the step that Then, Goto or Else names.
func (r *run) resolve(name string) (int32, error) {
	to, ok := r.f.flow.def.resolve(r.f.progress.pc, name)
	if !ok {
		return none, fmt.Errorf("cannot go to %q: %w", name, errUnknownStep)
	}
	return to, nil
}

// follow returns the move after a step is done: to the step then or, if that is none, to the following step.
func (r *run) follow(then int32) move {
	m, err := r.f.follow(then)
	if err != nil {
		return r.fail(err, none)
	}
	return m
}

// failUser is fail for an error of guarded user code. A panic is not retried, and goes to OnError but not to orElse.
func (r *run) failUser(err error, orElse int32) move {
	if _, panicked := err.(*PanicError); panicked {
		return r.failed(err, none)
	}
	return r.fail(err, orElse)
}

// fail handles an error of a step, which may be retried.
func (r *run) fail(err error, orElse int32) move {
	f, st := r.f, r.f.step()
	if r.step.timedOut() && err != errDeadline && err != errFiberLate {
		late := errDeadline
		if f.late(r.now) {
			late = errFiberLate
		}
		if err == ErrTimeout || err == context.Canceled { // an error of the context, which late replaces
			err = late
		} else {
			err = fmt.Errorf("%w: %w", late, err)
		}
	}
	runs := int(f.progress.attempt) + 1
	if st.retry != nil && !st.retry.exhausted(runs) && !f.progress.cancelled() && !f.is(err, ErrFinal) {
		at, d := f.deadlines(), st.retry.Delay(runs)
		if at == 0 || plus(r.now, d) < at {
			f.failing(err, r.now)
			f.logGoesOn("step failed and is retried", err, slog.Int("attempts", runs), slog.Duration("wait", d))
			return r.sleep(whyRetry, none, orElse, d)
		}
	}
	return r.failed(err, orElse)
}

// failed handles a step that failed for good.
func (r *run) failed(err error, orElse int32) move {
	f := r.f
	err = f.inPath(err)
	if orElse == none {
		orElse = f.step().onError
	}
	if orElse == none || f.late(r.now) {
		return move{kind: moveFailed, err: err}
	}
	m := r.follow(orElse)
	f.logGoesOn("step failed; continuing at another step", err)
	f.note(func(n *notes) { n.led = err })
	return m
}

// sleep parks the fiber for d.
func (r *run) sleep(why reason, then, orElse int32, d time.Duration) move {
	f := r.f
	f.resume, f.wake = then, plus(r.now, max(d, 0))
	f.park = nil
	if orElse != none {
		f.park = &parking{orElse: orElse}
	}
	switch {
	case why == whyRetry:
		f.saver().parked(r.step.ctx, why, f.progress.attempt+1, 0, orElse)
	case d <= 0:
		return r.follow(then)
	default:
		f.saver().delayed(r.step.ctx, then, orElse)
	}
	return r.park(why, f.untilDeadline(f.wake))
}

// slept continues after a delay or the wait for a retry, unless the deadline of the step came first.
func (r *run) slept(why reason) move {
	f, orElse := r.f, none
	if f.park != nil {
		orElse = f.park.orElse
	}
	f.park = nil
	if at := f.stepDeadline(); at > 0 && r.now >= at && (why == whyRetry || at < f.wake) {
		return r.fail(errDeadline, orElse)
	}
	if why == whyRetry {
		return move{kind: moveRepeat, to: f.progress.pc, attempt: f.progress.attempt + 1, entered: f.progress.entered}
	}
	return r.follow(f.resume)
}

// maxCover is how often a save before a step with an Undo is tried.
const maxCover = 8

// coverLater parks the fiber after a failed save, to try the step and the save again. It fails the step after maxCover
// attempts.
func (r *run) coverLater(err error, orElse int32) move {
	f, d := r.f, r.f.durable()
	if d.tries++; d.tries >= maxCover {
		d.tries = 0
		return r.fail(err, orElse)
	}
	f.failing(fmt.Errorf("cannot save position: %w", err), r.now)
	r.e.log.Warn("cannot save position", "key", f.key, "path", f.path(), "reason", reasonSave, "try", d.tries,
		"error", err)
	return r.park(whyLoad, f.untilDeadline(r.e.now()+int64(Backoff{}.Delay(int(d.tries)))))
}

// suspend runs the action and parks, unless the token has been resumed already.
func (r *run) suspend(n Next, then, orElse int32) move {
	f := r.f
	fresh, early := f.useToken(n.token)
	if !fresh {
		f.dropToken()
		return r.fail(fmt.Errorf("cannot suspend: %w", errStaleToken), orElse)
	}
	f.park = &parking{then: then, orElse: orElse}
	if !early {
		f.saver().parked(r.step.ctx, whySuspend, f.progress.attempt, 0, orElse)
	}
	if n.action != nil {
		if err := f.guard(func() error { return n.action(r.step.ctx) }); err != nil {
			f.dropToken()
			f.park = nil
			return r.failUser(err, orElse)
		}
	}
	if r.tryPark(whySuspend, f.untilDeadline(0), pokeToken) {
		return move{kind: moveAway}
	}
	if f.progress.cancelled() {
		return move{kind: moveCancel}
	}
	return r.resumed(pokeToken)
}

// resumed continues after a suspension: its token was used, or a deadline passed.
func (r *run) resumed(poke pokes) move {
	p := r.f.park
	r.f.park = nil
	if err := r.f.endSuspension(poke); err != nil {
		return r.fail(err, p.orElse)
	}
	return r.follow(p.then)
}

// await starts watching the waits, checks them once, and parks.
func (r *run) await(n Next, then, orElse int32, deadline int64) move {
	f, p := r.f, &parking{then: then, orElse: orElse}
	f.park = p
	if err := f.watch(n.waits, r.now); err != nil {
		return r.failUser(err, orElse)
	}
	if deadline > 0 && p.timeoutAt > 0 {
		p.timeoutAt = deadline // the deadline from before the restart
	}
	if m, done := r.check(false); done {
		return m
	}
	f.saver().parked(r.step.ctx, whyAwait, f.progress.attempt, p.timeoutAt, orElse)
	return r.parkAwait()
}

// awaited checks the waits after an event, or when a check is due.
func (r *run) awaited() move {
	f, p := r.f, r.f.park
	late := p.timeoutAt > 0 && r.now >= p.timeoutAt
	due := p.checkAt > 0 && r.now >= p.checkAt
	if m, done := r.check(due || late); done {
		return m
	}
	if late {
		f.dropWaits()
		return r.fail(fmt.Errorf("await: %w", ErrTimeout), p.orElse)
	}
	if at := f.stepDeadline(); at > 0 && r.now >= at {
		f.dropWaits()
		return r.fail(errDeadline, p.orElse)
	}
	if due {
		p.checkAt = p.nextCheck(r.e, r.now)
	}
	return r.parkAwait()
}

// parkAwait parks until an event, the next live check, or a deadline. If an event came during the last check, it checks
// again.
func (r *run) parkAwait() move {
	f, p := r.f, r.f.park
	for {
		at := earlier(f.untilDeadline(p.timeoutAt), p.checkAt)
		if r.tryPark(whyAwait, at, pokeEvent) {
			return move{kind: moveAway}
		}
		if f.progress.cancelled() {
			return move{kind: moveCancel}
		}
		f.forgetEvents()
		r.step.open()
		if m, done := r.check(false); done {
			return m
		}
	}
}

// check checks the waits. done reports that the await is over.
func (r *run) check(live bool) (m move, done bool) {
	p := r.f.park
	done, err := r.f.check(r.step.ctx, live)
	if !done {
		return move{}, false
	}
	r.now = r.e.now()
	if err != nil {
		return r.failUser(err, p.orElse), true
	}
	return r.follow(p.then), true
}

// fork starts the children and parks until they have ended.
func (r *run) fork(spec *forkSpec, then, orElse int32) move {
	f, e := r.f, r.e
	if spec.fault != "" {
		return r.fail(fmt.Errorf("%w: cannot fork: the fork %s", ErrInvalid, spec.fault), orElse)
	}
	if len(spec.children) == 0 {
		return r.follow(then)
	}
	j, err := newJoin(f, spec)
	if err != nil {
		return r.fail(err, orElse)
	}
	s := f.saver()
	if slices.ContainsFunc(j.todo, Child.undoes) {
		if err := s.cover(r.step.ctx, whyFork.String()); err != nil {
			return r.coverLater(err, orElse)
		}
	}
	s.parked(r.step.ctx, whyFork, f.progress.attempt, 0, orElse)
	f.stopContext()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.goes(f) {
		return move{kind: moveCancel}
	}
	f.park = &parking{then: then, orElse: orElse, fork: j}
	e.park(f, whyFork, f.untilDeadline(0))
	j.start(e)
	return move{kind: moveAway}
}

// joined continues after the last child has ended.
func (r *run) joined() move {
	p := r.f.park
	r.f.park = nil
	if err := p.fork.err(); err != nil {
		return r.fail(err, p.orElse)
	}
	return r.follow(p.then)
}
