package flow

import (
	"context"
	"errors"
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
		if then, err = destination(r.f, n.then); err != nil {
			return r.fail(err, none)
		}
	}
	if n.orElse != "" {
		if orElse, err = destination(r.f, n.orElse); err != nil {
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

// follow returns the move after a step is done: to the step then or, if that is none, to the following step.
func (r *run) follow(then int32) move {
	m, err := follow(r.f, then)
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
		late := lateness(f, r.now)
		if err == ErrTimeout || err == context.Canceled { // an error of the context, which late replaces
			err = late
		} else {
			err = fmt.Errorf("%w: %w", late, err)
		}
	}
	runs := int(f.progress.attempt) + 1
	if st.retry != nil && !st.retry.exhausted(runs) && !f.progress.cancelled() && !matches(err, ErrFinal) {
		at, d := deadlines(f), st.retry.Delay(runs)
		if at == 0 || plus(r.now, d) < at {
			noteRetry(f, err, r.now)
			logHandled(r.log, f, "step failed and is retried", err, slog.Int("attempts", runs), slog.Duration("wait", d))
			return r.sleep(whyRetry, none, orElse, d)
		}
	}
	return r.failed(err, orElse)
}

// failed handles a step that failed for good.
func (r *run) failed(err error, orElse int32) move {
	f := r.f
	err = inPath(f, err)
	if f.progress.cancelled() { // the error is usually that of the context, and the fiber goes to no other step
		logCut(r.log, f, err)
		return move{kind: moveCancel}
	}
	if orElse == none {
		orElse = f.step().onError
	}
	if orElse == none || isLate(f, r.now) {
		return move{kind: moveFailed, err: err}
	}
	m := r.follow(orElse)
	logHandled(r.log, f, "step failed; continuing at another step", err)
	annotate(f, func(n *notes) { n.led = err })
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
		r.saves.parked(r.step.ctx, why, f.progress.attempt+1, 0, orElse)
	case d <= 0:
		return r.follow(then)
	default:
		r.saves.delayed(r.step.ctx, then, orElse)
	}
	return r.park(why, earlier(f.wake, deadlines(f)))
}

// slept continues after a delay or the wait for a retry, unless the deadline of the step came first.
func (r *run) slept(why reason) move {
	f, orElse := r.f, none
	if f.park != nil {
		orElse = f.park.orElse
	}
	f.park = nil
	if at := stepDeadline(f); at > 0 && r.now >= at && (why == whyRetry || at < f.wake) {
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
	f := r.f
	tries, again := r.saves.failed(maxCover)
	if !again {
		return r.fail(err, orElse)
	}
	noteRetry(f, fmt.Errorf("cannot save position: %w", err), r.now)
	r.log.Warn("cannot save position", "key", f.key, "path", f.path(), "reason", reasonSave, "try", tries, "error", err)
	return r.park(whyLoad, earlier(f.e.time.now()+int64(Backoff{}.Delay(int(tries))), deadlines(f)))
}

// suspend runs the action and parks, unless the token has been resumed already.
func (r *run) suspend(n Next, then, orElse int32) move {
	f := r.f
	fresh, early := useToken(f, n.token)
	if !fresh {
		dropToken(f)
		return r.fail(fmt.Errorf("cannot suspend: %w", errStaleToken), orElse)
	}
	f.park = &parking{then: then, orElse: orElse}
	if !early {
		r.saves.parked(r.step.ctx, whySuspend, f.progress.attempt, 0, orElse)
	}
	if n.action != nil {
		if err := guard(f, func() error { return n.action(r.step.ctx) }); err != nil {
			dropToken(f)
			f.park = nil
			return r.failUser(err, orElse)
		}
	}
	if r.tryPark(whySuspend, deadlines(f), pokeToken) {
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
	if err := endSuspension(r.f, poke); err != nil {
		return r.fail(err, p.orElse)
	}
	return r.follow(p.then)
}

// await starts watching the waits, checks them once, and parks.
func (r *run) await(n Next, then, orElse int32, deadline int64) move {
	f, p := r.f, &parking{then: then, orElse: orElse}
	f.park = p
	if err := p.start(n.waits, newWaker(f), r.backstop, &f.e.time, r.now, f); err != nil {
		dropAwait(f, r.log)
		return r.failUser(err, orElse)
	}
	if deadline > 0 && p.timeoutAt > 0 {
		p.timeoutAt = deadline // the deadline from before the restart
	}
	if m, done := r.check(false); done {
		return m
	}
	r.saves.parked(r.step.ctx, whyAwait, f.progress.attempt, p.timeoutAt, orElse)
	return r.parkAwait()
}

// awaited checks the waits after an event, or when a check is due.
func (r *run) awaited() move {
	f, p := r.f, r.f.park
	due, late := p.due(r.now)
	if m, done := r.check(due || late); done {
		return m
	}
	if late {
		dropAwait(f, r.log)
		return r.fail(fmt.Errorf("await: %w", ErrTimeout), p.orElse)
	}
	if at := stepDeadline(f); at > 0 && r.now >= at {
		dropAwait(f, r.log)
		return r.fail(errDeadline, p.orElse)
	}
	if due {
		p.schedule(&f.e.time, r.now)
	}
	return r.parkAwait()
}

// parkAwait parks until an event, the next live check, or a deadline. If an event came during the last check, it checks
// again.
func (r *run) parkAwait() move {
	f, p := r.f, r.f.park
	for {
		at := earlier(earlier(p.timeoutAt, deadlines(f)), p.checkAt)
		if r.tryPark(whyAwait, at, pokeEvent) {
			return move{kind: moveAway}
		}
		if f.progress.cancelled() {
			return move{kind: moveCancel}
		}
		forgetEvents(f)
		r.step.open()
		if m, done := r.check(false); done {
			return m
		}
	}
}

// check checks the waits. done reports that the await is over.
func (r *run) check(live bool) (m move, done bool) {
	f, p := r.f, r.f.park
	held, done, err := p.check(r.step.ctx, &f.e.time, live, f)
	if !done {
		return move{}, false
	}
	dropAwait(f, r.log)
	if err == nil && len(p.waits) > 1 {
		setValue(f, held)
	}
	r.now = f.e.time.now()
	if err != nil {
		return r.failUser(err, p.orElse), true
	}
	return r.follow(p.then), true
}

// fork starts the children and parks until they have ended.
func (r *run) fork(spec *forkSpec, then, orElse int32) move {
	f := r.f
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
	if slices.ContainsFunc(j.todo, Child.undoes) {
		if err := r.saves.cover(r.step.ctx, whyFork.String()); err != nil {
			return r.coverLater(err, orElse)
		}
	}
	r.saves.parked(r.step.ctx, whyFork, f.progress.attempt, 0, orElse)
	stopContext(f)
	if !r.host.fork(f, &parking{then: then, orElse: orElse, fork: j}, deadlines(f)) {
		return move{kind: moveCancel}
	}
	return move{kind: moveAway}
}

// joined continues after the last child has ended.
func (r *run) joined() move {
	p := r.f.park
	r.f.park = nil
	if p.fork.err != nil {
		return r.fail(p.fork.err, p.orElse)
	}
	return r.follow(p.then)
}

// logCut logs the error of a step whose fiber is cancelled. Only a panic is a warning.
func logCut(log *slog.Logger, f *fiber, err error) {
	level, text := slog.LevelDebug, "step cut short: the fiber is cancelled"
	if p := (*PanicError)(nil); errors.As(err, &p) {
		level, text = slog.LevelWarn, "step panicked after the fiber was cancelled"
	}
	if !log.Enabled(context.Background(), level) {
		return
	}
	log.LogAttrs(context.Background(), level, text,
		slog.String("path", f.path()), slog.String("key", f.root().key), slog.Any("cause", f.x.Load().cause),
		slog.Any("error", err))
}

// logHandled logs a failure that the fiber handles, by a retry or an error handler.
func logHandled(log *slog.Logger, f *fiber, text string, err error, more ...slog.Attr) {
	if !log.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	log.LogAttrs(context.Background(), slog.LevelWarn, text, append([]slog.Attr{
		slog.String("path", f.path()), slog.String("key", f.root().key), slog.Any("error", err),
	}, more...)...)
}
